"""The rates of a run and its time left, at its pace. Pure."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from monitor.model.history import History
from monitor.model.report import Rates, Throughput
from monitor.units import age

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
    history: History = field(default_factory=lambda: History(MAX_MARKS))

    def extend(
        self, start: float, ends: FloatArray, amounts: Mapping[str, FloatArray], uncounted: BoolArray | None = None
    ) -> None:
        """Add steps, the first from `start` on.

        Args:
            amounts: their tokens and samples, where they are counted.
            uncounted: which of them did work that is unknown; None: none.
        """
        if self.start is None:
            self.start = start
            self.recent.append((start, 0, 0, 0, 0))
        last = float(ends.max())
        self.end = last if self.end is None or last > self.end else self.end
        done = np.arange(self.steps + 1, self.steps + 1 + len(ends))
        sums = {
            "tokens": _running(self.tokens, amounts.get("tokens"), len(ends)),
            "samples": _running(self.samples, amounts.get("samples"), len(ends)),
            "uncounted": _running(self.uncounted, uncounted, len(ends)),
        }
        self.steps = int(done[-1])
        self.tokens, self.samples, self.uncounted = (int(column[-1]) for column in sums.values())
        self.history.add(done - 1, {"end": ends, "last": done.astype(float), **sums})
        reached = self.recent[-1][0] + MIN_MARK_SECONDS
        places = []
        for place, end in enumerate(ends.tolist()):
            if end >= reached:
                places.append(place)
                reached = end + MIN_MARK_SECONDS
        if places:
            self.recent += _marks(ends, done, *sums.values(), places=places[-2 * MAX_MARKS :])
        while len(self.recent) > MAX_MARKS:
            del self.recent[: MAX_MARKS // 4]

    @property
    def whole(self) -> list[Mark]:
        """Return the marks over the whole run: at the ends of its stretches of equally many steps."""
        if self.start is None:
            return []
        columns = [self.history.of(name) for name in ("end", "last", "tokens", "samples", "uncounted")]
        marks = _marks(*columns)
        if marks and marks[-1][1] % self.history.width:  # the newest stretch is not complete
            del marks[-1]
        return [(self.start, 0, 0, 0, 0), *marks]

    def done(self, t: float) -> float:
        """Return the steps done by time `t`, interpolated between the marks of the whole run."""
        marks = self.whole
        at = bisect(marks, t, key=lambda mark: mark[0])
        if at == 0 or at == len(marks):
            return float(marks[at - 1][1]) if at else 0.0
        (before, few, *_), (after, more, *_) = marks[at - 1 : at + 1]
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


def _running(before: int, column: FloatArray | BoolArray | None, count: int) -> FloatArray:
    """Return the running sums of a column, starting from `before`; what is not counted adds nothing."""
    if column is None:
        return np.full(count, float(before))
    return np.where(column == column, column, 0.0).cumsum() + float(before)


def _marks(*columns: FloatArray | IntArray, places: Sequence[int] | None = None) -> list[Mark]:
    picked = [column if places is None else column[list(places)] for column in columns]
    ends, counts = picked[0].tolist(), [column.astype(np.int64).tolist() for column in picked[1:]]
    return list(zip(ends, *counts, strict=True))


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
