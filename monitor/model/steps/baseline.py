"""The typical step, and which steps are slow: by median and median absolute deviation. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from monitor import step_columns
from monitor.model.steps.growth import Slope, slope
from trainhooks.protocol.events import Pulse, Step
from trainhooks.protocol.limits import OVERFLOW

WINDOW = 128  # steps in the median: enough to ignore outliers, few enough to follow a change
WARM_UP = 3  # first steps of a kind, left out: allocators, caches, autotuning and compilation make them slow
MIN_BASELINE_STEPS = 8  # steps before anything is called unusual
SIGMAS = 6.0  # robust standard deviations: chance does not exceed six, however long the run
MIN_SLOW_RATIO = 1.5  # of the typical step: in a single step, less does not matter to people
# About one step in sixteen is regularly longer than typical (a cache miss, a print). A step is slow only if it is
# clearly longer than these, too.
HABIT_SHARE = 0.06
MIN_HABIT_RATIO = 1.2
MIN_EXCESS_SECONDS = 0.02  # seconds; the scheduler of a shared machine may take as much now and then
RECHECK = 16  # steps between two computations of the limit while the window fills
RECHECK_FULL = 64  # the same once it is full: in fewer steps its median hardly moves

MAD_TO_SIGMA = 1.4826  # of a normal distribution

Rows = Callable[[int, int], list[dict[str, float]]]


class StepKind(NamedTuple):
    """The role and stage of a step: steps of one kind are compared with each other. None: the step names none."""

    role: str | None = None
    stage: str | None = None

    @staticmethod
    def of(step: Step | Pulse) -> StepKind:
        """Return the kind of a step, or of the step that a pulse shows open; an empty name is none."""
        return StepKind(step.role or None, step.stage or None)


OTHER_KINDS = StepKind(OVERFLOW)  # the row that further kinds share once a table of kinds is full


@dataclass(slots=True)
class Baseline:
    """The typical step of one role and stage."""

    seen: int = 0
    durations: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)
    limit: float = 0.0  # a longer step is slow; 0 while too few steps are known

    def unusual(self, duration: float) -> bool:
        """Return whether a step this long is slow, judged by the steps before it."""
        if self.limit == 0.0 or duration <= self.limit:
            return False
        self.limit = self._limit()  # it may have moved since it was computed
        return duration > self.limit

    def warm_up(self) -> None:
        """Leave out the next steps as warm-up: the process has been restarted."""
        self.seen = 0

    def take(self, column: step_columns.Column, rows: Rows, slow: Callable[[int], None]) -> None:
        """Add consecutive steps, each judged by those before it.

        Args:
            column: their seconds.
            rows: returns the phases of the steps from one position up to another; asked only for those to be kept.
            slow: called with the position of each slow step, before that step is added.
        """
        durations: list[float] = step_columns.as_list(column)
        end = len(durations)
        at = min(end, max(0, WARM_UP - self.seen))
        self.seen += at
        ahead = self._ahead(column[at:]) if step_columns.is_array(column) else {}
        remembered = at  # the phases of the steps before this one are in the window, or belong to the warm-up
        while at < end:
            upto = min(end, at + self._same_limit())
            if max(durations[at:upto]) > self.limit > 0.0:  # a step may be slow: check one by one
                upto = at + 1
                if self.unusual(durations[at]):
                    self._remember(rows, remembered, at)
                    remembered = at
                    slow(at)
            self._add(durations[at:upto], ahead)
            at = upto
        self._remember(rows, remembered, end)

    def _same_limit(self) -> int:
        """Return for how many steps the limit stays as it is, at least 1."""
        if self.limit == 0.0:
            return 1
        every = self._every()
        return every - self.seen % every

    def _every(self) -> int:
        return RECHECK if len(self.durations) < WINDOW else RECHECK_FULL

    def _ahead(self, durations: step_columns.Column) -> dict[int, float]:
        """Return the limits of full windows ahead of time, by the number of steps seen at each check."""
        known = step_columns.joined([self.durations, durations])
        skipped = self.seen - len(self.durations)
        first = WINDOW + -(skipped + WINDOW) % RECHECK_FULL
        if len(known) < first:
            return {}
        ordered = step_columns.windows(known[first - WINDOW :], WINDOW, RECHECK_FULL)
        typical = _middle(ordered)
        apart = step_columns.ordered(abs(ordered - typical))
        limits = map(_limit_of, typical.tolist(), _middle(apart).tolist(), _habit(ordered).tolist())
        return dict(zip(range(skipped + first, skipped + len(known) + 1, RECHECK_FULL), limits, strict=True))

    def _add(self, durations: Sequence[float], ahead: dict[int, float]) -> None:
        self.seen += len(durations)
        self.durations += durations
        del self.durations[:-WINDOW]
        if len(self.durations) >= MIN_BASELINE_STEPS and (self.limit == 0.0 or self.seen % self._every() == 0):
            self.limit = ahead.get(self.seen) or self._limit()

    def _remember(self, rows: Rows, first: int, end: int) -> None:
        """Keep the phases of the steps that were added, as many as the window holds."""
        count = min(end - first, len(self.durations))
        self.phases += rows(end - count, end)
        del self.phases[: len(self.phases) - len(self.durations)]

    def _limit(self) -> float:
        ordered = sorted(self.durations)
        typical = _middle(ordered)
        half = len(ordered) // 2  # on either side the deviations are sorted already: they merge in one pass
        apart = sorted(
            [typical - seconds for seconds in ordered[:half]][::-1] + [seconds - typical for seconds in ordered[half:]]
        )
        return _limit_of(typical, _middle(apart), _habit(ordered))

    def typical(self) -> float:
        """Return the median seconds of a step; 0 without steps."""
        return median(self.durations) if self.durations else 0.0

    def typical_phases(self) -> dict[str, float]:
        """Return the median seconds of each phase; a step without it counts as 0."""
        names = {name: None for row in self.phases for name in row}
        return {name: median(row.get(name, 0.0) for row in self.phases) for name in names}


def slow_limit(durations: Sequence[float]) -> float:
    """Return from how many seconds on steps of these durations are slow; `durations` is not empty."""
    return Baseline(durations=list(durations))._limit()


def _limit_of(typical: float, deviation: float, habit: float) -> float:
    spread = MAD_TO_SIGMA * deviation
    return max(
        typical + SIGMAS * spread, MIN_SLOW_RATIO * typical, MIN_HABIT_RATIO * habit, typical + MIN_EXCESS_SECONDS
    )


def _habit(ordered: Any) -> Any:
    return ordered[int((1 - HABIT_SHARE) * (len(ordered) - 1))]


def _middle(ordered: Any) -> Any:
    """Return the median of sorted values, without sorting them again; of sorted rows, one for each column."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


# The minimum and maximum of a quantity over hours, in bounded memory; whether its minimum keeps rising.
#
# A leak is memory still held when everything else has been freed: so the minimum of each stretch counts.

MAX_STRETCHES = 256  # at least 16 in each part of a full table; more would only take memory
PARTS = 8  # of equal length, each of which has to rise above the one before
MIN_PART_RISE = 0.25  # of the mean rise a step, in each part: a single jump is no leak
MIN_LATE_RISE = 0.5  # the same in the last two parts together: a cache levels off
MIN_STRETCHES = 2  # stretches in each part: a single one may be an outlier
MIN_STEP_SHARE = 0.1  # of the mean number of steps between two parts: a rise over fewer steps is not judged


@dataclass(frozen=True, slots=True)
class Climb:
    """A minimum that rises steadily."""

    first: float  # the median minimum of the first part
    last: float
    seconds: float  # between the middles of the two
    newest: float
    watched: float = 0.0  # seconds, from the begin of the first part to the end of the last
    steps: float = 0.0  # done meanwhile
    per_step: Slope | None = None  # where it is known to be steady

    @property
    def rate(self) -> float:
        """Return the rise a second."""
        return (self.last - self.first) / self.seconds


@dataclass(slots=True)
class Trend:
    """The minimum and maximum of a value in stretches of 1, 2, 4... seconds."""

    width: float = 1.0
    begin: float | None = None
    places: list[int] = field(default_factory=list)  # numbers of the stretches
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, t: float, value: float) -> None:
        if self.begin is None:
            self.begin = t
        place = int((t - self.begin) / self.width)
        if self.places and place <= self.places[-1]:
            self.low[-1], self.high[-1] = min(self.low[-1], value), max(self.high[-1], value)
            return
        self.places.append(place)
        self.low.append(value)
        self.high.append(value)
        if len(self.places) > MAX_STRETCHES:
            self._halve()

    def _halve(self) -> None:
        rows = list(zip(self.places, self.low, self.high, strict=True))
        self.places, self.low, self.high = [], [], []
        self.width *= 2
        for place, low, high in rows:
            if self.places and self.places[-1] == place // 2:
                self.low[-1], self.high[-1] = min(self.low[-1], low), max(self.high[-1], high)
                continue
            self.places.append(place // 2)
            self.low.append(low)
            self.high.append(high)

    def climb(
        self, since: float, done: Callable[[float], float], least: int = MIN_STRETCHES, until: float = math.inf
    ) -> Climb | None:
        """Return how the minimum rose since that moment; None: not steadily, not to the end, or too few stretches.

        Args:
            done: returns the number of steps done by a moment. Steps are what leaks: where they are slow or there are
                none, the memory rises more slowly or not at all.
            least: stretches in each part.
            until: what lies later does not count, as the end of a program, which gives its memory back.
        """
        parts = self._parts(since, least, until)
        rows = [(done(median(t for t, _ in part)), median(low for _, low in part)) for part in parts]
        if not rows or rows[-1][0] <= rows[0][0]:
            return None
        mean = (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])
        min_steps = MIN_STEP_SHARE * (rows[-1][0] - rows[0][0]) / len(rows)
        worked = [(a, b) for a, b in pairwise(rows) if b[0] - a[0] >= min_steps]
        rises = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in worked]
        if mean <= 0 or min(rises) < MIN_PART_RISE * mean or sum(rises[-2:]) / 2 < MIN_LATE_RISE * mean:
            return None
        points = [(done(t), low) for part in parts for t, low in part]
        per_step = slope(points)
        found = self.rise(since, least, until)
        if per_step is None or not per_step.rises or found is None:
            return None
        return replace(found, per_step=per_step, steps=points[-1][0] - points[0][0])

    def rise(self, since: float, least: int = MIN_STRETCHES, until: float = math.inf) -> Climb | None:
        """Return the rise from the first part since that moment to the last; None: too few stretches."""
        parts = self._parts(since, least, until)
        if not parts:
            return None
        floors = [median(low for _, low in part) for part in (parts[0], parts[-1])]
        middles = [median(t for t, _ in part) for part in (parts[0], parts[-1])]
        return Climb(
            first=floors[0],
            last=floors[1],
            seconds=middles[1] - middles[0],
            newest=parts[-1][-1][1],
            watched=parts[-1][-1][0] - parts[0][0][0] + self.width,
        )

    def _parts(self, since: float, least: int, until: float) -> list[list[tuple[float, float]]]:
        """Return (time, minimum) pairs in parts of equal size; no parts where there are too few."""
        if self.begin is None:
            return []
        rows = [
            (self.begin + (place + 0.5) * self.width, low)
            for place, low in zip(self.places, self.low, strict=True)
            if self.begin + place * self.width >= since and self.begin + place * self.width < until
        ]
        size = len(rows) // PARTS
        if size < least:
            return []
        rows = rows[len(rows) - PARTS * size :]
        return [rows[at : at + size] for at in range(0, PARTS * size, size)]


# Steps as fast, normal and slow, by bounds that the user sets.

FAST, NORMAL, SLOW = "fast", "normal", "slow"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds a step: fast up to `fast`, slow from `slow` on."""

    fast: float
    slow: float

    def of(self, seconds: float) -> str:
        return FAST if seconds <= self.fast else SLOW if seconds >= self.slow else NORMAL


@dataclass(frozen=True, slots=True)
class SpeedClasses:
    """The number of steps in each class. Bins are 2% wide: steps that close to a bound may be misclassified."""

    fast_seconds: float
    slow_seconds: float
    fast: int
    normal: int
    slow: int


def counted(bins: Mapping[int, int], zeros: int, width: float, bounds: Bounds) -> SpeedClasses:
    """Return the number of steps in each class.

    Args:
        bins: n -> the number of steps between width**n and width**(n + 1) seconds.
        zeros: steps that took no time.
    """
    kinds = {FAST: zeros, NORMAL: 0, SLOW: 0}
    for number, count in bins.items():
        kinds[bounds.of(width ** (number + 0.5))] += count
    return SpeedClasses(
        fast_seconds=bounds.fast, slow_seconds=bounds.slow, fast=kinds[FAST], normal=kinds[NORMAL], slow=kinds[SLOW]
    )
