"""What a process was seen at before its first step, by its own look at its main thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartLook:
    """What the main thread of one process was seen at, before its first step."""

    pid: int
    what: str  # a name of `trainhooks.protocol.start_waits`, else an activity of `calls`; empty: unknown
    of: str = ""  # what it is about
    since: float = 0.0  # monotonic seconds
    place: str = ""  # in the code
    rank: int | None = None
    world_size: int | None = None
    alive: bool = True
