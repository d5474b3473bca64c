"""How long a run will still take: the steps to come at the pace in force, and the stops whose rhythm is known. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median

from monitor.model.pace import RECENT_STEPS, Mark, Pace
from trainhooks.events import Span

WARM_UP = 4  # stretches, of which the first is left out: it allocates, compiles and fills caches
SAME = 0.10  # of the pace: what differs by less is the same one
SURE = 3.0  # standard errors: nor is a difference that chance may make
PARTS = 8  # of the run, whose speeds make the range
HOLDS = 3  # one pace for a third of the run is taken to stay, and only its own parts make the range
REGULAR = 1.25  # the longest of a stop's distances in steps against its shortest
NEWEST_STOPS = 3  # which tell how long the next one takes

Stretch = tuple[int, float]  # steps, seconds


@dataclass(frozen=True, slots=True)
class Stop:
    """What the training stops for again and again: an evaluation, a checkpoint."""

    every: int  # steps
    last: int  # the step after which it came last
    seconds: float  # it takes
    past: tuple[tuple[float, float], ...]  # when each ended, and the seconds it took

    def to_come(self, step: int, steps: int) -> float:
        """Seconds that it takes in the next `steps` steps after number `step`; at the very end, too."""
        if step >= self.last + 2 * self.every:
            return 0.0  # it has missed its turn: there is no rhythm any more
        return self.seconds * max(0, (step + steps - self.last) // self.every)


def stops(marks: Sequence[Span]) -> list[Stop]:
    """The stops of which at least two came, at even distances."""
    named: dict[str, dict[int, list[Span]]] = {}
    for span in marks:
        if span.own_seconds > 0 and span.step is not None:
            named.setdefault(span.name, {}).setdefault(span.step, []).append(span)
    found = []
    for places in named.values():
        at = sorted(places)
        gaps = [after - before for before, after in pairwise(at)]
        if not gaps or max(gaps) > REGULAR * min(gaps):
            continue
        taken = [sum(each.own_seconds for each in places[step]) for step in at]
        ends = [max(each.start + each.duration for each in places[step]) for step in at]
        past = tuple(zip(ends, taken, strict=True))
        found.append(Stop(round(median(gaps)), at[-1], fmean(taken[-NEWEST_STOPS:]), past))
    return found


def time_left(
    pace: Pace, steps: int, step: int = 0, stopping: Sequence[Stop] = (), passed: float = 0.0
) -> tuple[float, float, float] | None:
    """Seconds for `steps` more: the likeliest, and the range that the run's own past gives; None if unknown.

    Args:
        step: the number of the last step.
        stopping: the stops whose rhythm is known.
        passed: seconds since the last step ended.
    """
    if pace.end is None or pace.steps < 2:
        return None
    course = _Course(_stretches(pace, stopping))
    begin = _change(course)
    likeliest, chance = course.mean(begin), SURE * course.error(begin)
    if likeliest <= 0:
        return None
    holds = HOLDS * course.steps(begin) >= course.steps(0)
    paces = [likeliest, *_parts(course, begin if holds else 0)]
    halted = sum(each.to_come(step, steps) for each in stopping)
    due = sum(each.to_come(step, 0) for each in stopping)
    gone = min(passed, likeliest + due)  # of the step that is open, or of a stop: it may take longer than usual
    off = 1.0 + chance / likeliest
    each = likeliest, min(*paces, likeliest / off), max(*paces, likeliest * off)
    left = [max(0.0, steps * seconds + halted - gone) for seconds in each]
    return left[0], left[1], left[2]


class _Course:
    """Stretches of a run as running sums, so that any row of them is added up by one subtraction."""

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
        """Seconds a step."""
        seconds = self._seconds[self.count if end is None else end] - self._seconds[begin]
        return seconds / max(1, self.steps(begin, end))

    def error(self, begin: int, end: int | None = None) -> float:
        """The standard error of that mean, by how the stretches differ."""
        end = self.count if end is None else end
        count = end - begin
        if count < 2:
            return 0.0
        mean = (self._paces[end] - self._paces[begin]) / count
        spread = max(0.0, (self._squares[end] - self._squares[begin]) / count - mean * mean)
        return math.sqrt(spread / count)

    def back(self, end: int, steps: int) -> int:
        """Where the row of at least so many steps begins that ends there, or the first one."""
        return max(0, bisect_right(self._steps, self._steps[end] - steps) - 1)


def _sums(values: Iterable[float]) -> list[float]:
    return list(accumulate(values, initial=0.0))


def _stretches(pace: Pace, stopping: Sequence[Stop]) -> list[Stretch]:
    """The run in stretches, the newest of a few steps each, without the warm-up and what it stopped for by rule."""
    assert pace.end is not None
    first = pace.recent[0][1]
    marks: list[Mark] = [*(mark for mark in pace.whole if mark[1] < first), *pace.recent]
    if marks[-1][1] < pace.steps:
        marks.append((pace.end, pace.steps, 0, 0))
    past = sorted(row for stop in stopping for row in stop.past)
    out, at = [], 0
    for before, after in pairwise(marks):
        seconds = after[0] - before[0]
        while at < len(past) and past[at][0] <= after[0]:
            seconds -= past[at][1]
            at += 1
        if after[1] > before[1]:
            out.append((after[1] - before[1], max(0.0, seconds)))
    return out[1:] if len(out) >= WARM_UP else out


def _change(course: _Course) -> int:
    """Where the pace that is in force began: back from the newest steps, as long as those before them keep it."""
    begin = sure = course.back(course.count, RECENT_STEPS)
    while begin > 0:
        before = course.back(begin, max(RECENT_STEPS, course.steps(begin) // 2))
        now, then = course.mean(begin), course.mean(before, begin)
        chance = SURE * math.hypot(course.error(begin), course.error(before, begin))
        if abs(then - now) > max(SAME * now, chance):
            return sure  # the change may lie within the last row that was taken in
        begin, sure = before, begin
    return begin


def _parts(course: _Course, begin: int) -> list[float]:
    """The pace of each part from there on, of about as many steps each."""
    least, end, out = max(RECENT_STEPS, course.steps(begin) // PARTS), course.count, []
    while course.steps(begin, end) >= least:
        before = max(begin, course.back(end, least))
        out.append(course.mean(before, end))
        end = before
    return out
