"""What is usual for a step, and which steps are not. Robust: median and median absolute deviation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from monitor import columns

WINDOW = 128  # steps that say what is usual: enough to tell a habit from an accident, few enough to follow a change
WARM_UP = 3  # first steps of a kind, left out: allocators, caches, autotuning and compilation make them slow
ENOUGH = 8  # steps before anything is called unusual
SIGMAS = 6.0  # beyond six robust standard deviations chance does not reach in any run's length
LEAST_RATIO = 1.5  # and half as long again: people do not care for less in a single step
HABIT = 0.06  # what one step in sixteen of the window does anyway is the loop's habit (a cache that misses, a print)
BEYOND_HABIT = 1.2  # and no news, unless a step is clearly longer than that
LEAST_EXCESS = 0.02  # seconds; less is what the scheduler of a shared box takes now and then
RECHECK = 16  # steps between two looks at the window while it fills
RECHECK_FULL = 64  # and once it is full: in fewer steps its median hardly moves

MAD_TO_SIGMA = 1.4826  # of a normal distribution

Rows = Callable[[int, int], list[dict[str, float]]]


@dataclass(slots=True)
class Baseline:
    """The usual step of one role and stage."""

    seen: int = 0
    durations: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)
    limit: float = 0.0  # a step up to this long is usual; 0 while too little is known

    def unusual(self, duration: float) -> bool:
        """Whether a step this long is slow, judged by the steps before it."""
        if self.limit == 0.0 or duration <= self.limit:
            return False
        self.limit = self._limit()  # it may have moved since the last look
        return duration > self.limit

    def warm_up(self) -> None:
        """The process has started anew: its first steps are slow again, and tell nothing."""
        self.seen = 0

    def take(self, column: columns.Column, rows: Rows, slow: Callable[[int], None]) -> None:
        """Steps in a row, each judged by those before it.

        Args:
            column: how long they took.
            rows: the phases of the steps from a place up to another one; asked for few of a long row.
            slow: told the place of each unusual step, before that step counts as seen.
        """
        durations: list[float] = columns.as_list(column)
        end = len(durations)
        at = min(end, max(0, WARM_UP - self.seen))
        self.seen += at
        ahead = self._ahead(column[at:]) if columns.is_array(column) else {}
        told = at  # the phases of the steps before this place are in the window, or were of the warm-up
        while at < end:
            upto = min(end, at + self._same_limit())
            if max(durations[at:upto]) > self.limit > 0.0:  # some step may be unusual: one by one
                upto = at + 1
                if self.unusual(durations[at]):
                    self._remember(rows, told, at)
                    told = at
                    slow(at)
            self._add(durations[at:upto], ahead)
            at = upto
        self._remember(rows, told, end)

    def _same_limit(self) -> int:
        """How many steps the limit stands for, the next one at least."""
        if self.limit == 0.0:
            return 1
        every = self._every()
        return every - self.seen % every

    def _every(self) -> int:
        return RECHECK if len(self.durations) < WINDOW else RECHECK_FULL

    def _ahead(self, durations: columns.Column) -> dict[int, float]:
        """The limits of full windows, by the steps seen by then, where they are looked at again: all of an array's."""
        known = columns.joined([self.durations, durations])
        skipped = self.seen - len(self.durations)
        first = WINDOW + -(skipped + WINDOW) % RECHECK_FULL
        if len(known) < first:
            return {}
        ordered = columns.windows(known[first - WINDOW :], WINDOW, RECHECK_FULL)
        usual = _middle(ordered)
        apart = columns.ordered(abs(ordered - usual))
        limits = map(_limit_of, usual.tolist(), _middle(apart).tolist(), _habit(ordered).tolist())
        return dict(zip(range(skipped + first, skipped + len(known) + 1, RECHECK_FULL), limits, strict=True))

    def _add(self, durations: Sequence[float], ahead: dict[int, float]) -> None:
        self.seen += len(durations)
        self.durations += durations
        del self.durations[:-WINDOW]
        if len(self.durations) >= ENOUGH and (self.limit == 0.0 or self.seen % self._every() == 0):
            self.limit = ahead.get(self.seen) or self._limit()

    def _remember(self, rows: Rows, first: int, end: int) -> None:
        """Phases of steps that were taken in: as many as the window holds."""
        count = min(end - first, len(self.durations))
        self.phases += rows(end - count, end)
        del self.phases[: len(self.phases) - len(self.durations)]

    def _limit(self) -> float:
        ordered = sorted(self.durations)
        usual = _middle(ordered)
        half = len(ordered) // 2  # on either side the deviations are in order: they merge in one pass
        apart = sorted([usual - each for each in ordered[:half]][::-1] + [each - usual for each in ordered[half:]])
        return _limit_of(usual, _middle(apart), _habit(ordered))

    def usual(self) -> float:
        """Seconds of the usual step."""
        return median(self.durations) if self.durations else 0.0

    def usual_phases(self) -> dict[str, float]:
        """Seconds of each phase in the usual step; a phase that a step lacks counts as 0 there."""
        names = {name: None for row in self.phases for name in row}
        return {name: median(row.get(name, 0.0) for row in self.phases) for name in names}


def _limit_of(usual: float, deviation: float, habit: float) -> float:
    spread = MAD_TO_SIGMA * deviation
    return max(usual + SIGMAS * spread, LEAST_RATIO * usual, BEYOND_HABIT * habit, usual + LEAST_EXCESS)


def _habit(ordered: Any) -> Any:
    return ordered[int((1 - HABIT) * (len(ordered) - 1))]


def _middle(ordered: Any) -> Any:
    """The median of values in order; `median` would sort them once more. Of rows in order, as columns, one for each."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
