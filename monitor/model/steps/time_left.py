"""The time that a run has left, at its own pace and with its regular stops. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median, stdev

from monitor.model.steps.baseline import WARM_UP
from monitor.model.steps.pace import RECENT_STEPS, Mark, Pace
from trainhooks.protocol.events import Span

MAX_PACE_CHANGE = 0.10  # of the pace: a smaller difference is no change of pace
SIGMAS = 3.0  # standard errors: a smaller difference may be chance
PARTS = 8  # of the run, whose paces give the range
# Student's t, 90th percentile, by degrees of freedom: of eight times in ten the time left lies within the range.
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415)
UNKNOWN_SPREAD = 1.0  # of the pace: one part says nothing of how the others will differ
STEADY_DIVISOR = 3  # a pace that held for a third of the run is expected to stay: the range is then of its parts only
MAX_GAP_RATIO = 1.25  # of the longest distance in steps between two stops of a kind to the shortest
NEWEST_STOPS = 3  # in the mean that predicts the next stop

Stretch = tuple[int, float]  # steps, seconds


@dataclass(frozen=True, slots=True)
class Stop:
    """A regular stop of the training: an evaluation, a checkpoint."""

    every: int  # steps
    last: int  # the step after which it came last
    seconds: float  # the expected duration of the next one
    past: tuple[tuple[float, float], ...]  # the end and the seconds of past ones

    def to_come(self, step: int, steps: int) -> float:
        """Return its seconds in the next `steps` steps after number `step`, a stop after the last of them included."""
        if step >= self.last + 2 * self.every:
            return 0.0  # one was missed: no longer regular
        return self.seconds * max(0, (step + steps - self.last) // self.every)


def stops(marks: Sequence[Span]) -> list[Stop]:
    """Return the regular stops: at least two of a name, at even distances in steps."""
    named: dict[str, dict[int, list[Span]]] = {}
    for span in marks:
        if span.own_seconds > 0 and span.step is not None:
            named.setdefault(span.name, {}).setdefault(span.step, []).append(span)
    regular_stops = []
    for places in named.values():
        at = sorted(places)
        gaps = [after - before for before, after in pairwise(at)]
        if not gaps or max(gaps) > MAX_GAP_RATIO * min(gaps):
            continue
        taken = [sum(span.own_seconds for span in places[step]) for step in at]
        ends = [max(span.start + span.duration for span in places[step]) for step in at]
        past = tuple(zip(ends, taken, strict=True))
        regular_stops.append(
            Stop(every=round(median(gaps)), last=at[-1], seconds=fmean(taken[-NEWEST_STOPS:]), past=past)
        )
    return regular_stops


def time_left(
    pace: Pace, steps: int, step: int = 0, stopping: Sequence[Stop] = (), passed: float = 0.0
) -> tuple[float, float, float] | None:
    """Return the seconds for `steps` more steps: expected, and the range of 80%; None: unknown.

    Args:
        step: the number of the last step.
        stopping: the regular stops.
        passed: seconds since the last step ended.
    """
    if pace.end is None or pace.steps < 2:
        return None
    halted = sum(stop.to_come(step, steps) for stop in stopping)
    due = sum(stop.to_come(step, 0) for stop in stopping)
    return _left(_stretches(pace, stopping), steps, halted, passed, 1, due)


def iterations_left(
    stretches: Sequence[Stretch], steps: int, passed: float, each: int
) -> tuple[float, float, float] | None:
    """Return the same by whole iterations of `each` steps: within one, steps that collect and steps that learn differ.

    Args:
        stretches: the iterations, without the first one.
        steps: those that follow the begin of the open iteration.
        passed: seconds since it began.
    """
    return _left(stretches, steps, 0.0, passed, each, 0.0)


def _left(
    stretches: Sequence[Stretch], steps: int, halted: float, passed: float, opened: int, due: float
) -> tuple[float, float, float] | None:
    """Return the seconds that `steps` steps and the stops of `halted` seconds take, less what has passed of them.

    What has passed belongs to the `opened` next steps and the stops that are due, which may take longer than that.
    """
    sums = _StretchSums(stretches)
    begin = _change(sums)
    expected = sums.mean(begin)
    if expected <= 0:
        return None
    gone = min(passed, opened * expected + due)
    wide = 1.0 + _spread(_parts(sums, begin), steps / max(1, sums.steps(begin)))
    holds = STEADY_DIVISOR * sums.steps(begin) >= sums.steps(0)
    before = [] if holds else _parts(sums, 0)  # another speed may come back
    candidates = expected, min([expected / wide, *before]), max([expected * wide, *before])
    left = [max(0.0, steps * seconds + halted - gone) for seconds in candidates]
    return left[0], left[1], left[2]


def _spread(paces: Sequence[float], to_come: float) -> float:
    """Return how far the mean pace to come may be from that of the past, as a share of it: a prediction interval.

    Args:
        paces: of the past, in parts of about as many steps.
        to_come: the steps to come, as a multiple of the past ones.
    """
    count = len(paces)
    if count < 2:
        return UNKNOWN_SPREAD
    error = stdev(paces) * math.sqrt(1 / count + 1 / max(1.0, count * to_come))
    return STUDENT[count - 2] * error / fmean(paces)


class _StretchSums:
    """Running sums over the stretches of a run: the sum of any range takes one subtraction."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        paces = [seconds / steps for steps, seconds in stretches]
        self.count = len(stretches)
        self._steps = _sums(steps for steps, _ in stretches)
        self._seconds = _sums(seconds for _, seconds in stretches)
        self._paces = _sums(paces)
        self._squares = _sums(pace * pace for pace in paces)

    def steps(self, begin: int, end: int | None = None) -> int:
        return round(self._steps[self.count if end is None else end] - self._steps[begin])

    def mean(self, begin: int, end: int | None = None) -> float:
        """Return the mean seconds a step."""
        seconds = self._seconds[self.count if end is None else end] - self._seconds[begin]
        return seconds / max(1, self.steps(begin, end))

    def error(self, begin: int, end: int | None = None) -> float:
        """Return the standard error of that mean, by the spread of the stretches; 0 below two stretches."""
        end = self.count if end is None else end
        count = end - begin
        if count < 2:
            return 0.0
        mean = (self._paces[end] - self._paces[begin]) / count
        spread = max(0.0, (self._squares[end] - self._squares[begin]) / count - mean * mean)
        return math.sqrt(spread / count)

    def back(self, end: int, steps: int) -> int:
        """Return the begin of the shortest range of at least `steps` steps that ends at `end`; 0: none."""
        return max(0, bisect_right(self._steps, self._steps[end] - steps) - 1)


def _sums(values: Iterable[float]) -> list[float]:
    return list(accumulate(values, initial=0.0))


def _stretches(pace: Pace, stopping: Sequence[Stop]) -> list[Stretch]:
    """Return the run in stretches, the newest ones of a few steps, without warm-up and regular stops.

    The first steps allocate, compile and fill caches: they are not in the pace of what is to come.
    """
    assert pace.end is not None
    first = pace.recent[0][1]
    marks: list[Mark] = [*(mark for mark in pace.whole if mark[1] < first), *pace.recent]
    if marks[-1][1] < pace.steps:
        marks.append((pace.end, pace.steps, 0, 0, 0))
    past = sorted(row for stop in stopping for row in stop.past)
    stretches, warm, at = [], 0, 0
    for before, after in pairwise(marks):
        seconds = after[0] - before[0]
        while at < len(past) and past[at][0] <= after[0]:
            seconds -= past[at][1]
            at += 1
        if after[1] > before[1]:
            stretches.append((after[1] - before[1], max(0.0, seconds)))
            warm += before[1] < WARM_UP
    return stretches[min(warm, len(stretches) - 1) :]


def _change(sums: _StretchSums) -> int:
    """Return the stretch at which the current pace began: goes back while the steps before have the same pace."""
    begin = sure = sums.back(sums.count, RECENT_STEPS)
    while begin > 0:
        before = sums.back(begin, max(RECENT_STEPS, sums.steps(begin) // 2))
        now, then = sums.mean(begin), sums.mean(before, begin)
        chance = SIGMAS * math.hypot(sums.error(begin), sums.error(before, begin))
        if abs(then - now) > max(MAX_PACE_CHANGE * now, chance):
            return sure  # the change may be within the last range that was added
        begin, sure = before, begin
    return begin


def _parts(sums: _StretchSums, begin: int) -> list[float]:
    """Return the paces from `begin` on, in at most `PARTS` parts of about the same number of steps."""
    least, end, paces = max(1, math.ceil(sums.steps(begin) / PARTS)), sums.count, []
    while end > begin:
        before = max(begin, sums.back(end, least))
        paces.append(sums.mean(before, end))
        end = before
    return paces[:PARTS]
