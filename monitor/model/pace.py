"""How fast, lately and since the first step. Pure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from monitor import columns
from monitor.model.report import Rates, Throughput
from monitor.slab import append_all
from monitor.units import age

LEAST_GAP = 0.5  # seconds between two marks: finer says nothing to a reader
RECENT_SECONDS = 30.0
RECENT_STEPS = 10  # a recent rate is over at least this many steps, however long they take
MAX_MARKS = 256
SINCE = "since the first step"  # what every speed and gain is over, unless it says otherwise

Mark = tuple[float, int, int, int]  # end of a step, and steps, tokens, samples done by then


@dataclass(slots=True)
class Pace:
    """Marks along the way: a dense line of recent ones, and a sparse one over the whole run."""

    steps: int = 0
    tokens: int = 0
    samples: int = 0
    start: float | None = None  # begin of the first step
    end: float | None = None  # end of the last
    recent: list[Mark] = field(default_factory=list)
    whole: list[Mark] = field(default_factory=list)
    stride: int = 1  # steps between two marks of `whole`

    def add(self, start: float, end: float, tokens: int, samples: int) -> None:
        """One more step."""
        self.extend(start, [end], [tokens], [samples])

    def extend(self, start: float, ends: Sequence[float], tokens: columns.Column, samples: columns.Column) -> None:
        """Some more steps, the first from `start` on. Work that is not told counts as 0."""
        if self.start is None:
            self.start = start
            self.recent.append((start, 0, 0, 0))
            self.whole.append((start, 0, 0, 0))
        last = max(ends)
        self.end = last if self.end is None or last > self.end else self.end
        done = range(self.steps + 1, self.steps + 1 + len(ends))
        all_tokens, all_samples = columns.rising(self.tokens, tokens), columns.rising(self.samples, samples)
        self.steps, self.tokens, self.samples = done[-1], int(all_tokens[-1]), int(all_samples[-1])

        def mark(at: int) -> Mark:
            return ends[at], done[at], int(all_tokens[at]), int(all_samples[at])

        append_all(self.recent, *self._apart(ends, mark), MAX_MARKS, MAX_MARKS // 4)
        at = 0
        while (at := next_multiple(done, at, self.stride)) < len(ends):
            self._whole(mark(at))
            at += 1

    def _apart(
        self, ends: Sequence[float], mark: Callable[[int], Mark]
    ) -> tuple[int, Callable[[int, int], Iterator[Mark]]]:
        """The steps that get a mark in the dense line: how many, and the marks of some of them."""
        places = []
        reached = self.recent[-1][0] + LEAST_GAP
        for place, end in enumerate(ends):
            if end >= reached:
                places.append(place)
                reached = end + LEAST_GAP
        return len(places), lambda first, upto: map(mark, places[first:upto])

    def _whole(self, mark: Mark) -> None:
        self.whole.append(mark)
        if len(self.whole) > MAX_MARKS:
            self.whole = self.whole[:1] + [each for each in self.whole[1:] if each[1] % (2 * self.stride) == 0]
            self.stride *= 2

    def done(self, t: float) -> float:
        """Steps that were done by then, by a line between the marks of the whole run."""
        at = bisect(self.whole, t, key=lambda mark: mark[0])
        if at == 0 or at == len(self.whole):
            return float(self.whole[at - 1][1]) if at else 0.0
        (before, few, *_), (after, more, *_) = self.whole[at - 1 : at + 1]
        return few + (more - few) * (t - before) / (after - before)

    def whole_run(self) -> Rates:
        """From the first step's begin to the last step's end, pauses between steps included."""
        if self.start is None or self.end is None:
            return Rates()
        return self._rates((self.start, 0, 0, 0))

    def lately(self) -> Rates:
        """Over the last half minute, or the last ten steps where those took longer."""
        return Rates() if self.end is None else self._rates(self._latest())

    def latest(self) -> tuple[float, int] | None:
        """The seconds and the steps that `lately` is over."""
        if self.end is None:
            return None
        since = self._latest()
        return self.end - since[0], self.steps - since[1]

    def _latest(self) -> Mark:
        """Where the latest stretch begins."""
        assert self.end is not None
        for mark in reversed(self.recent):
            if self.end - mark[0] >= RECENT_SECONDS and self.steps - mark[1] >= RECENT_STEPS:
                return mark
        return self.recent[0]

    def _rates(self, since: Mark) -> Rates:
        assert self.end is not None
        seconds = self.end - since[0]
        steps, tokens, samples = self.steps - since[1], self.tokens - since[2], self.samples - since[3]
        if seconds <= 0 or steps <= 0:
            return Rates()
        return Rates(
            steps / seconds,
            tokens / seconds if self.tokens else None,
            samples / seconds if self.samples else None,
        )


def recent_over(throughput: Throughput) -> str:
    """What the recent rates are over: `last 30 s`, `last 10 steps`."""
    seconds, steps = throughput.recent_seconds, throughput.recent_steps
    if seconds is None or steps is None:
        return ""
    return f"last {steps} steps" if steps <= RECENT_STEPS else f"last {age(seconds)}"


def next_multiple(numbers: range, at: int, of: int) -> int:
    """The first place from `at` on whose number is a multiple of `of`; it may lie beyond the end."""
    return at + -(numbers.start + at) % of
