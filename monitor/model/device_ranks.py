"""Who waits for whom on the device's clock: the last one to arrive in a collective is charged. Pure.

Each rank times a sample of its own steps, so ranks are compared by their usual times, not step by step. Where a rank
arrives late, the others' devices wait in the phases that hold collectives, and its own does not: theirs are longer by
what it takes longer elsewhere. What is not seen in both is not charged to anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from monitor.model.device_lane import parts_told
from trainhooks.events import GpuTime

# Phases in which ranks wait for each other. Under FSDP some waiting is in `forward`, too: it is then underestimated.
COLLECTIVE = frozenset(
    ("backward", "optimizer", "all_reduce", "allreduce", "reduce_scatter", "all_gather", "weight_sync", "barrier")
)
WINDOW = 64  # timed steps kept of each rank
WARM_UP = 3  # the first ones compile and allocate
ENOUGH = 12  # of each rank: medians of fewer differ by chance
WORTH = 0.05  # of a step that the others wait
APART = 0.25  # of a step, by which the ranks' steps may differ: beyond, they do not keep step
CONFIRMED = 0.5  # of the others' waiting shows as longer phases of the one that they wait for


@dataclass(slots=True)
class DeviceSteps:
    """One rank's newest timed steps."""

    taken: int = 0
    latest: list[dict[str, float]] = field(default_factory=list)  # seconds by phase, `other` among them

    def take(self, told: GpuTime) -> None:
        if not told.seconds:
            return
        self.taken += 1
        if self.taken <= WARM_UP:
            return
        self.latest.append(parts_told(told))
        del self.latest[:-WINDOW]

    def usual(self) -> dict[str, float]:
        names = dict.fromkeys(name for row in self.latest for name in row)
        return {name: median(row.get(name, 0.0) for row in self.latest) for name in names}


@dataclass(frozen=True, slots=True)
class Late:
    """The rank that the others wait for."""

    rank: int
    seconds: float  # a step, that the others wait, at least
    share: float  # of a step
    culprit: str  # the phase in which it takes longer than the others
    steps: int  # timed ones, of the rank that has fewest


def usual_steps(ranks: Mapping[int, DeviceSteps]) -> dict[int, dict[str, float]]:
    """The usual step of each rank, by phase; nothing before enough steps of every one were timed."""
    if len(ranks) < 2 or any(len(stats.latest) < ENOUGH for stats in ranks.values()):
        return {}
    return {rank: stats.usual() for rank, stats in ranks.items()}


def waits_of(usual: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    """Seconds of a usual step that each rank waits for others: what its collectives take beyond the shortest."""
    shared = {rank: _collective(row) for rank, row in usual.items()}
    least = min(shared.values(), default=0.0)
    return {rank: seconds - least for rank, seconds in shared.items()}


def late_rank(ranks: Mapping[int, DeviceSteps]) -> Late | None:
    """The rank that makes the others wait, where that is clear."""
    return late_of(usual_steps(ranks), min((len(stats.latest) for stats in ranks.values()), default=0))


def late_of(usual: Mapping[int, Mapping[str, float]], steps: int) -> Late | None:
    """The same, of what is usual.

    Args:
        steps: that this is the median of, at least.
    """
    if not usual:
        return None
    lengths = [sum(row.values()) for row in usual.values()]
    period = fmean(lengths)
    if period <= 0 or max(lengths) - min(lengths) > APART * period:
        return None
    waiting = waits_of(usual)
    rank = min(waiting, key=lambda each: waiting[each])
    others = [row for each, row in usual.items() if each != rank]
    wait = fmean(seconds for each, seconds in waiting.items() if each != rank)
    longer = {
        name: seconds - fmean(row.get(name, 0.0) for row in others)
        for name, seconds in usual[rank].items()
        if name not in COLLECTIVE
    }
    culprit = max(longer, key=lambda name: longer[name], default=None)
    if culprit is None or wait < WORTH * period or longer[culprit] < CONFIRMED * wait:
        return None
    return Late(rank, wait, wait / period, culprit, steps)


def _collective(row: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in row.items() if name in COLLECTIVE)
