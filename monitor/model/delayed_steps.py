"""Steps before which the device was held up, so that kernels ran back to back: how busy a usual step keeps it. Pure.

Such a step's own length says nothing of the usual ones; what the device worked in it does. Divided by what a usual step
takes, that is the share in which the device is busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from monitor.model.report import Estimate
from trainhooks.events import OVERFLOW, GpuTime

MAX_KEPT = 64  # steps; the hooks delay eight
MAX_PHASES = 200  # of one step
ENOUGH = 3  # steps, before their mean is told: steps differ
# Of a usual step, in which the device may have waited for the host: beyond, such a step tells nothing.
UNSURE = 0.10
# Shares differ by so much for what is not seen: clocks that change, caches that the delay left cold, marks' own time.
POINTS = 0.02


@dataclass(slots=True)
class DelayedStep:
    busy: dict[str, float]  # seconds by phase
    unsure: dict[str, float]


@dataclass(slots=True)
class DelayedSteps:
    """Those of one rank, the newest."""

    steps: list[DelayedStep] = field(default_factory=list)
    held_up: float = 0.0  # seconds of all delays

    def take(self, told: GpuTime) -> None:
        self.held_up += told.delayed or 0.0
        self.steps.append(DelayedStep(_by_phase(told.busy_phases), _by_phase(told.unsure)))
        del self.steps[:-MAX_KEPT]

    def estimate(self, usual: float) -> Estimate | None:
        """How busy steps that take the device `usual` seconds keep it; None where no step was delayed."""
        if not self.steps or usual <= 0.0:
            return None
        sure = [each for each in self.steps if sum(each.unsure.values()) <= UNSURE * usual]
        found = Estimate(steps=len(sure), void=len(self.steps) - len(sure), delay_seconds=self.held_up)
        if len(sure) < ENOUGH or len(sure) < len(self.steps) / 2:  # what a lucky few tell is not what steps are like
            return found
        busy = [sum(each.busy.values()) / usual for each in sure]
        may_be = [least + sum(each.unsure.values()) / usual for least, each in zip(busy, sure, strict=True)]
        found.busy_least, found.busy_most = min(1.0, fmean(busy)), min(1.0, fmean(may_be))
        found.range_least = max(0.0, min(busy) - POINTS)
        found.range_most = min(1.0, max(may_be) + POINTS)
        names = dict.fromkeys(name for each in sure for name in each.busy)
        found.phases = {name: fmean(each.busy.get(name, 0.0) for each in sure) / usual for name in names}
        return found


def narrowed(least: float | None, most: float | None, estimate: Estimate | None) -> tuple[float | None, float | None]:
    """A range of busy time with what delayed steps tell; as it was, where the two contradict each other."""
    if estimate is None or estimate.range_least is None or estimate.range_most is None:
        return least, most
    lower = max(estimate.range_least, least or 0.0)
    upper = min(estimate.range_most, 1.0 if most is None else most)
    return (lower, upper) if lower <= upper else (least, most)


def _by_phase(rows: list[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in rows:
        name = name if name in found or len(found) < MAX_PHASES else OVERFLOW
        found[name] = found.get(name, 0.0) + seconds
    return found
