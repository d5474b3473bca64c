"""The rates of a run and its time left, at its pace. Pure."""

from __future__ import annotations

import math
from bisect import bisect, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import fmean, median

from monitor import step_columns
from monitor.model.report import Rates, Throughput
from monitor.step_columns import append_all
from monitor.units import age
from trainhooks.protocol.events import Span

# Rates: recent, and since the first step.

MIN_MARK_SECONDS = 0.5  # between two marks: finer ones would not change what is shown
RECENT_SECONDS = 30.0
RECENT_STEPS = 10  # minimum of a recent rate, however long the steps take
MIN_RATE_STEPS = 2  # a single step, often a first one, is no rate
MAX_MARKS = 256
SINCE = "since the first step"  # the time base of every speed and gain, unless stated otherwise

# Share of the steps of a rate whose work must be known. The others are then taken to be like these; with fewer, nothing
# is known of too many steps: a program may have stopped to show its batches, or showed only one.
MIN_COUNTED = 0.9

Mark = tuple[float, int, int, int, int]  # end of a step; steps, tokens, samples, uncounted steps by then


@dataclass(slots=True)
class Pace:
    """Marks of the steps done by a time: dense recent ones, and sparse ones over the whole run."""

    steps: int = 0
    tokens: int = 0
    samples: int = 0
    uncounted: int = 0  # steps of which neither tokens nor samples are known, although they did work
    start: float | None = None  # begin of the first step
    end: float | None = None  # end of the last
    recent: list[Mark] = field(default_factory=list)
    whole: list[Mark] = field(default_factory=list)
    stride: int = 1  # steps between two marks of `whole`

    def add(self, start: float, end: float, tokens: int, samples: int) -> None:
        """Add one step."""
        self.extend(start, [end], [tokens], [samples])

    def extend(
        self,
        start: float,
        ends: Sequence[float],
        tokens: step_columns.Column,
        samples: step_columns.Column,
        uncounted: Sequence[bool] = (),
    ) -> None:
        """Add steps, the first from `start` on. `uncounted` says which did work that is unknown; empty: none."""
        if self.start is None:
            self.start = start
            self.recent.append((start, 0, 0, 0, 0))
            self.whole.append((start, 0, 0, 0, 0))
        last = max(ends)
        self.end = last if self.end is None or last > self.end else self.end
        done = range(self.steps + 1, self.steps + 1 + len(ends))
        all_tokens, all_samples = step_columns.rising(self.tokens, tokens), step_columns.rising(self.samples, samples)
        self.steps, self.tokens, self.samples = done[-1], int(all_tokens[-1]), int(all_samples[-1])
        missing = list(accumulate(uncounted, initial=self.uncounted))[1:] or [self.uncounted] * len(ends)
        self.uncounted = missing[-1]

        def mark(at: int) -> Mark:
            return ends[at], done[at], int(all_tokens[at]), int(all_samples[at]), missing[at]

        append_all(self.recent, *self._apart(ends, mark), MAX_MARKS, MAX_MARKS // 4)
        at = 0
        while (at := next_multiple(done, at, self.stride)) < len(ends):
            self._whole(mark(at))
            at += 1

    def _apart(
        self, ends: Sequence[float], mark: Callable[[int], Mark]
    ) -> tuple[int, Callable[[int, int], Iterator[Mark]]]:
        """Return how many of the steps get a recent mark, and a function that returns a range of these marks."""
        places = []
        reached = self.recent[-1][0] + MIN_MARK_SECONDS
        for place, end in enumerate(ends):
            if end >= reached:
                places.append(place)
                reached = end + MIN_MARK_SECONDS
        return len(places), lambda first, upto: map(mark, places[first:upto])

    def _whole(self, mark: Mark) -> None:
        self.whole.append(mark)
        if len(self.whole) > MAX_MARKS:
            self.whole = self.whole[:1] + [mark for mark in self.whole[1:] if mark[1] % (2 * self.stride) == 0]
            self.stride *= 2

    def done(self, t: float) -> float:
        """Return the steps done by time `t`, interpolated between the marks of the whole run."""
        at = bisect(self.whole, t, key=lambda mark: mark[0])
        if at == 0 or at == len(self.whole):
            return float(self.whole[at - 1][1]) if at else 0.0
        (before, few, *_), (after, more, *_) = self.whole[at - 1 : at + 1]
        return few + (more - few) * (t - before) / (after - before)

    def whole_run(self, loop: float = math.inf) -> Rates:
        """Return the rates from the first step's begin to the last step's end, pauses included.

        Args:
            loop: when the loop began, where that was before its first step.
        """
        if self.start is None or self.end is None:
            return Rates()
        return self._rates((min(loop, self.start), 0, 0, 0, 0))

    def recent_rates(self) -> Rates:
        """Return the rates over the last half minute, or the last ten steps where those took longer."""
        return Rates() if self.end is None else self._rates(self._recent_mark())

    def recent_span(self) -> tuple[float, int] | None:
        """Return the seconds and the steps that `recent_rates` covers."""
        if self.end is None:
            return None
        since = self._recent_mark()
        return self.end - since[0], self.steps - since[1]

    def _recent_mark(self) -> Mark:
        """Return the mark at which the recent stretch begins."""
        assert self.end is not None
        for mark in reversed(self.recent):
            if self.end - mark[0] >= RECENT_SECONDS and self.steps - mark[1] >= RECENT_STEPS:
                return mark
        return self.recent[0]

    def _rates(self, since: Mark) -> Rates:
        assert self.end is not None
        seconds = self.end - since[0]
        steps, tokens, samples = self.steps - since[1], self.tokens - since[2], self.samples - since[3]
        if seconds <= 0 or steps <= 0 or self.steps < MIN_RATE_STEPS:
            return Rates()
        counted = 1.0 - (self.uncounted - since[4]) / steps
        seconds_counted = seconds * counted
        known = counted >= MIN_COUNTED
        return Rates(
            steps_per_second=steps / seconds,
            tokens_per_second=tokens / seconds_counted if self.tokens and known else None,
            samples_per_second=samples / seconds_counted if self.samples and known else None,
            counted=counted if (self.tokens or self.samples) else None,
        )


def amounts_per_step(pace: Pace) -> list[float]:
    """Return the tokens per step along the run, samples where no tokens are counted; empty where neither is."""
    place = 2 if pace.tokens else 3
    marks = pace.whole[1:]  # the first one lies before a step
    amounts = [(b[place] - a[place]) / (b[1] - a[1]) for a, b in pairwise(marks) if b[1] > a[1]]
    return amounts if any(amounts) else []


def recent_over(throughput: Throughput) -> str:
    """Return the time base of the recent rates, `last 30 s` or `last 10 steps`; empty: unknown."""
    seconds, steps = throughput.recent_seconds, throughput.recent_steps
    if seconds is None or steps is None:
        return ""
    return f"last {steps} steps" if steps <= RECENT_STEPS else f"last {age(seconds)}"


def next_multiple(numbers: range, at: int, of: int) -> int:
    """Return the first place from `at` on whose number is a multiple of `of`; it may lie beyond the end."""
    return at + -(numbers.start + at) % of


# Time left

WARM_UP_STRETCHES = 4  # from so many on the first is left out: it allocates, compiles and fills caches
MAX_PACE_CHANGE = 0.10  # of the pace: a smaller difference is no change of pace
SIGMAS = 3.0  # standard errors: a smaller difference may be chance
PARTS = 8  # of the run, whose paces give the range
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
    """Return the seconds for `steps` more steps: expected, lowest and highest by the run's past; None: unknown.

    Args:
        step: the number of the last step.
        stopping: the regular stops.
        passed: seconds since the last step ended.
    """
    if pace.end is None or pace.steps < 2:
        return None
    sums = _StretchSums(_stretches(pace, stopping))
    begin = _change(sums)
    expected, chance = sums.mean(begin), SIGMAS * sums.error(begin)
    if expected <= 0:
        return None
    holds = STEADY_DIVISOR * sums.steps(begin) >= sums.steps(0)
    paces = [expected, *_parts(sums, begin if holds else 0)]
    halted = sum(stop.to_come(step, steps) for stop in stopping)
    due = sum(stop.to_come(step, 0) for stop in stopping)
    gone = min(passed, expected + due)  # of the open step or stop, which may take longer than expected
    margin = 1.0 + chance / expected
    candidates = expected, min(*paces, expected / margin), max(*paces, expected * margin)
    left = [max(0.0, steps * seconds + halted - gone) for seconds in candidates]
    return left[0], left[1], left[2]


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
    """Return the run in stretches, the newest ones of a few steps, without warm-up and regular stops."""
    assert pace.end is not None
    first = pace.recent[0][1]
    marks: list[Mark] = [*(mark for mark in pace.whole if mark[1] < first), *pace.recent]
    if marks[-1][1] < pace.steps:
        marks.append((pace.end, pace.steps, 0, 0, 0))
    past = sorted(row for stop in stopping for row in stop.past)
    stretches, at = [], 0
    for before, after in pairwise(marks):
        seconds = after[0] - before[0]
        while at < len(past) and past[at][0] <= after[0]:
            seconds -= past[at][1]
            at += 1
        if after[1] > before[1]:
            stretches.append((after[1] - before[1], max(0.0, seconds)))
    return stretches[1:] if len(stretches) >= WARM_UP_STRETCHES else stretches


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
    """Return the paces from `begin` on, in parts of about the same number of steps."""
    least, end, paces = max(RECENT_STEPS, sums.steps(begin) // PARTS), sums.count, []
    while sums.steps(begin, end) >= least:
        before = max(begin, sums.back(end, least))
        paces.append(sums.mean(before, end))
        end = before
    return paces
