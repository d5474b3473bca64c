"""Which step was open at a moment, and when a step began: for whatever else has a time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.steps.step_intervals import Timelines
from trainhooks.protocol.events import Step


@dataclass(frozen=True, slots=True)
class StepClock:
    """When the steps of a run ran, in blocks that hold more steps the longer the run."""

    begins: tuple[float, ...] = ()  # of the blocks, rising
    ends: tuple[float, ...] = ()
    firsts: tuple[int, ...] = ()  # number of each block's first step
    lasts: tuple[int, ...] = ()

    def step_at(self, moment: float) -> int | None:
        """Return the step that was open at a moment, or ended last before it; None before the first step.

        Within a block of several steps it is estimated.
        """
        place = bisect_right(self.begins, moment) - 1
        if place < 0:
            return None
        first, last = self.firsts[place], self.lasts[place]
        seconds = self.ends[place] - self.begins[place]
        share = (moment - self.begins[place]) / seconds if seconds > 0 else 1.0
        return min(last, first + int(share * (last + 1 - first)))

    def is_exact(self, moment: float) -> bool:
        """Return whether the step at a moment is known, and not estimated."""
        place = bisect_right(self.begins, moment) - 1
        return place < 0 or self.firsts[place] == self.lasts[place] or moment >= self.ends[place]

    def begin_of(self, step: int) -> float | None:
        """Return when a step began, estimated within a block of several; of a repeated step, the last time."""
        places = [place for place in range(len(self.firsts)) if self.firsts[place] <= step <= self.lasts[place]]
        if not places:
            return None
        place = places[-1]
        share = (step - self.firsts[place]) / (self.lasts[place] + 1 - self.firsts[place])
        return self.begins[place] + share * (self.ends[place] - self.begins[place])


def step_clock(timelines: Timelines, latest: Sequence[Step]) -> StepClock:
    """Return the clock of a run's steps of all kinds.

    Args:
        latest: its newest steps, one by one, the oldest first.
    """
    histories = [times.history for times in timelines.kinds.values()]
    columns = [[history.of(name).tolist() for name in ("begin", "end", "first", "last")] for history in histories]
    rows = sorted(row for kind in columns for row in zip(*kind, strict=True))
    single = sorted((step.start, step.start + step.duration, step.index, step.index) for step in latest)
    if single:
        begin, _, first, _ = single[0]
        rows = [(row[0], min(row[1], begin), row[2], min(row[3], first - 1)) for row in rows if row[0] < begin]
        rows += single
    if not rows:
        return StepClock()
    begins, ends, firsts, lasts = zip(*rows, strict=True)
    return StepClock(begins, ends, tuple(map(int, firsts)), tuple(map(int, lasts)))
