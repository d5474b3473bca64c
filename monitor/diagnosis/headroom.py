"""Memory left unused, and time spent on saving it. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import duration, share, size_of

ENOUGH = 20  # steps
ROOM = 0.50  # of the memory never in use: twice the batch fits, and the longest batch may still be to come
BUSY = 0.80  # of the time in which the GPU ran something; one that is idle needs other help than memory
ENOUGH_LENGTHS = 100  # steps, so that long batches have been among them
RECOMPUTED = 0.33  # of backward: one forward more, and a backward is about two
CHECKPOINTING_WORTH = 0.05  # of the time since the first step
TWICE = 1.5  # times forward that a backward takes at least if the layers are computed again inside it


def memory_headroom(evidence: Evidence) -> Finding | None:
    """Half of the GPU's memory is never used, and the GPU is busy."""
    memory, used = hardware.gpu_memory(evidence), hardware.busy(evidence)
    if memory is None or used is None or used < BUSY or evidence.steps < ENOUGH_LENGTHS:
        return None
    peak, total = memory
    if 1 - peak / total < ROOM:
        return None
    return Finding(
        "memory-headroom",
        "info",
        f"{share(1 - peak / total)} of the GPU's memory is never used",
        [f"{size_of(peak, total)} at once, at most, in {evidence.steps:,} steps"],
        "Spend it where it gains: no gradient checkpointing, or a larger batch with less accumulation, while tokens/s"
        " grow.",
    )


def checkpointing_unneeded(evidence: Evidence) -> Finding | None:
    """Activations are computed a second time although there is memory for them."""
    memory, backward = hardware.free_memory(evidence), evidence.phase("backward")
    if not checkpoints(evidence) or memory is None or backward is None or backward.count < ENOUGH:
        return None
    used, whole, kind = memory
    recomputed = RECOMPUTED * backward.mean * backward.count
    forward = evidence.phase("forward")
    if 1 - used / whole < ROOM or evidence.of_loop(recomputed) < CHECKPOINTING_WORTH:
        return None
    # On a GPU the host's clock tells nothing of the two: it waits wherever it next needs a result.
    slow = hardware.place(evidence) == "cuda" or (forward is not None and backward.mean >= TWICE * forward.mean)
    if not slow:
        return None
    return Finding(
        "checkpointing-unneeded",
        "warning",
        f"Activations are computed twice to save memory, and {share(1 - used / whole)} of {kind} is never used",
        [
            f"{size_of(used, whole)} at once, at most",
            f"backward, with the layers computed again inside it: {duration(backward.mean)} a step",
        ],
        "gradient_checkpointing=False. Try it on the longest batch: activations of all layers are then kept.",
        evidence.of_wall(recomputed),
    )


def checkpoints(evidence: Evidence) -> bool:
    """Whether gradient checkpointing is on."""
    return hardware.table(evidence, "model").get("gradient_checkpointing") is True
