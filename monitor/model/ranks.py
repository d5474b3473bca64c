"""Ranks beside each other: how long each step takes them, and who waits for whom. Pure.

In synchronous training all ranks take the same time from step to step, because whoever is early waits in a collective:
gradients are reduced while `backward` runs. So the slowest rank is not the one with the longest step, but the one that
waits least there. The waiting of a rank is what its time in phases with collectives exceeds the shortest of all ranks
at the same step. That is a lower bound: where backward itself is slow on a rank, the others' waiting looks like work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from monitor.model.device_ranks import COLLECTIVE, DeviceSteps
from monitor.model.series import Spread
from monitor.slab import Slab, append_all
from trainhooks.events import Step

WINDOW = 64  # steps kept of each rank
WARM_UP = 3  # first steps of a process, left out: each rank compiles, allocates and fills its caches for itself
ENOUGH = 30  # common steps before anybody is named: of two equal ranks one waits less in 24 of 30 once in 1,400 looks
MOSTLY = 0.8  # of the steps in which the slowest rank must be the one that waits least
WORTH = 0.05  # of the time from step to step that the others wait: less is the scheduler's
APART = 0.25  # of the others' waiting: what the slowest may wait itself, and what the ranks' own clocks may differ by
IN_COLLECTIVES = 0.01  # of the time from step to step; with less in such phases nobody can be seen waiting there


@dataclass(slots=True)
class RankStats:
    """One rank's steps: all of them as figures, the latest one by one."""

    steps: int = 0
    seconds: Spread = field(default_factory=Spread)
    restart: int = 0
    taken: int = 0  # steps of the newest process
    latest: list[tuple[int, float, float]] = field(default_factory=list)  # index, end, seconds in collectives
    device: DeviceSteps = field(default_factory=DeviceSteps)

    def take(self, slab: Slab, restart: int) -> None:
        self.steps += len(slab)
        if slab.first.duration > 0.0:  # 0 is "not known"
            self.seconds.extend(slab.index, slab.duration)
        if slab.first.thread is not None or restart < self.restart:
            return
        if restart > self.restart:
            self.restart, self.taken, self.latest = restart, 0, []
        cold = min(len(slab), max(0, WARM_UP - self.taken))
        self.taken += len(slab)

        def rows(first: int, end: int) -> Iterator[tuple[int, float, float]]:
            return map(_ended, slab.steps(cold + first, cold + end))

        append_all(self.latest, len(slab) - cold, rows, 2 * WINDOW, WINDOW)


def _ended(step: Step) -> tuple[int, float, float]:
    shared = 0.0
    for name, seconds, _, _ in step.phases:
        if name in COLLECTIVE:
            shared += seconds
    return step.index, step.start + step.duration, shared


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the latest steps that all ranks have done say of them."""

    steps: int
    waits: dict[int, float]  # mean seconds a step that each rank waits for others
    usual: dict[int, float]  # the same, the median: a single long step is an alert, and no habit
    period: float  # seconds from step to step, of which all shares are
    slowest: int | None  # the rank that the others wait for, where that is clear
    seconds: float  # that the others usually wait a step
    share: float  # the same, of the time from step to step


def compare(ranks: Mapping[int, RankStats]) -> Comparison | None:
    """Who waits for whom; None where that cannot be told: one rank, no common steps, or no common pace."""
    if len(ranks) < 2 or len({stats.restart for stats in ranks.values()}) > 1:
        return None
    rows = {rank: {index: (end, shared) for index, end, shared in stats.latest} for rank, stats in ranks.items()}
    common = sorted(set.intersection(*(set(row) for row in rows.values())))[-WINDOW:]
    steps = len(common) - 1
    if steps < 1 or common[-1] - common[0] != steps:
        return None
    periods = [(row[common[-1]][0] - row[common[0]][0]) / steps for row in rows.values()]
    period = fmean(periods)
    shared = {rank: [row[index][1] for index in common[1:]] for rank, row in rows.items()}
    if period <= 0 or any(fmean(each) < IN_COLLECTIVES * period for each in shared.values()):
        return None
    least = [min(column) for column in zip(*shared.values(), strict=True)]
    waits = {rank: fmean(mine - low for mine, low in zip(each, least, strict=True)) for rank, each in shared.items()}
    slowest = min(waits, key=lambda rank: waits[rank])
    others = fmean(wait for rank, wait in waits.items() if rank != slowest)
    if max(periods) - min(periods) > max(APART * others, IN_COLLECTIVES * period):
        return None  # they do not keep step: none of them is waited for
    # What is usual decides, not the mean: a single long step is an alert, and no slow rank.
    usual_waits = {rank: _usual(each, least) for rank, each in shared.items()}
    usual = fmean(wait for rank, wait in usual_waits.items() if rank != slowest)
    times_least = sum(mine <= low for mine, low in zip(shared[slowest], least, strict=True))
    clear = (
        steps >= ENOUGH
        and usual >= WORTH * period
        and waits[slowest] <= APART * others
        and times_least >= MOSTLY * steps
    )
    return Comparison(steps, waits, usual_waits, period, slowest if clear else None, usual, usual / period)


def _usual(mine: Sequence[float], least: Sequence[float]) -> float:
    return median(seconds - low for seconds, low in zip(mine, least, strict=True))
