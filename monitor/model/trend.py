"""The minimum and maximum of a quantity over hours, in bounded memory; whether its minimum keeps rising. Pure.

A leak is memory still held when everything else has been freed: so the minimum of each stretch counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from monitor.arrays import np
from monitor.model.history import History
from monitor.model.steps.growth import Slope, slope

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

    begin: float | None = None
    history: History = field(default_factory=lambda: History(MAX_STRETCHES))

    def add(self, t: float, value: float) -> None:
        if self.begin is None:
            self.begin = t
        place = max(0, int(t - self.begin))
        one = np.array([value], float)
        self.history.add(np.array([place]), {"low": one, "high": one})

    @property
    def end(self) -> float | None:
        """Return when the newest stretch ends; None before any value."""
        if self.begin is None or not len(self.history):
            return None
        return self.begin + float((self.history.index[-1] + 1) * self.history.width)

    @property
    def highest(self) -> float:
        """Return the largest value; 0 before any."""
        return float(self.history.of("high").max(initial=0.0))

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
            watched=parts[-1][-1][0] - parts[0][0][0] + self.history.width,
        )

    def _parts(self, since: float, least: int, until: float) -> list[list[tuple[float, float]]]:
        """Return (time, minimum) pairs in parts of equal size; no parts where there are too few."""
        if self.begin is None:
            return []
        width = self.history.width
        begins = self.begin + self.history.index * width
        wanted = (begins >= since) & (begins < until)
        low = self.history.of("low")[wanted]
        rows = list(zip((begins[wanted] + 0.5 * width).tolist(), low.tolist(), strict=True))
        size = len(rows) // PARTS
        if size < least:
            return []
        rows = rows[len(rows) - PARTS * size :]
        return [rows[at : at + size] for at in range(0, PARTS * size, size)]
