"""What holds the memory of a run's processes, as they say. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainhooks.protocol.facts import Held
from trainhooks.protocol.memory import ProcessMemory

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients up to", "optimizer's state"
OTHERS, TENSORS, CACHE = "activations and all else at least", "tensors", "cache"


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


def holders(allocated: int, reserved: int | None, held: Held) -> list[tuple[str, int]]:
    """Return what holds a GPU's memory by torch's allocator, and bytes: the most first.

    Gradients are there from a backward pass to the update, so what is left for activations is the least there can be.

    Args:
        held: as counted once an optimizer had stepped; unknown before, and where a process uses several GPUs.
    """
    rows = [
        (name, part)
        for name, part in ((WEIGHTS, held.weights), (GRADIENTS, held.gradients), (OPTIMIZER, held.optimizer))
        if part
    ]
    rest = allocated - sum(part for _, part in rows)
    if rest < 0 and held.gradients:
        return holders(allocated, reserved, Held(held.weights, None, held.optimizer))
    rows = [*rows, (OTHERS, rest)] if rows and rest >= 0 else [(TENSORS, allocated)]
    rows.append((CACHE, max(0, (reserved or 0) - allocated)))
    return sorted((row for row in rows if row[1]), key=lambda row: -row[1])
