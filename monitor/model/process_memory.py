"""What holds the memory of a run's processes, as they say."""

from __future__ import annotations

from dataclasses import dataclass

from trainhooks.protocol.memory import ProcessMemory


@dataclass(frozen=True, slots=True)
class RankMemory:
    """What one rank says.

    Attributes:
        memory: None where it does not say.
        why: it does not.
    """

    rank: int
    memory: ProcessMemory | None = None
    why: str = ""
