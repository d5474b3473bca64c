"""A quantity over hours in bounded memory, and whether its floor keeps rising. Pure.

What leaks is what is still held when everything else has been given back: so the least of each stretch is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

MAX_STRETCHES = 256  # at the coarsest sixteen for each part; more only fill memory for longer
PARTS = 8  # that the time is cut into, and that have to rise one after the other
STEADY = 0.25  # of the mean rise a step, which each part has to rise by: what comes in one jump is no leak
GOES_ON = 0.5  # likewise the last two together: what levels off is a cache
LEAST = 2  # stretches in each of these: one alone may be a moment
FEW = 0.1  # of the usual steps from one part to the next: fewer tell nothing of what a step keeps


@dataclass(frozen=True, slots=True)
class Climb:
    """A floor that rises steadily."""

    first: float  # the usual floor of the first part
    last: float
    seconds: float  # between the middles of the two
    newest: float

    @property
    def rate(self) -> float:
        """A second."""
        return (self.last - self.first) / self.seconds


@dataclass(slots=True)
class Trend:
    """The least and the greatest value of stretches of 1, 2, 4... seconds."""

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

    def climb(self, since: float, done: Callable[[float], float], least: int = LEAST) -> Climb | None:
        """How its floor rose since that moment, where it did so steadily and goes on to.

        Args:
            done: the steps that were done at a moment. What is kept is kept by steps: where they become slower, and
                while there are none, it rises more slowly, or not at all.
            least: stretches in each part.
        """
        parts = self._parts(since, least)
        rows = [(done(median(t for t, _ in part)), median(low for _, low in part)) for part in parts]
        if not rows or rows[-1][0] <= rows[0][0]:
            return None
        mean = (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])
        enough = FEW * (rows[-1][0] - rows[0][0]) / len(rows)
        worked = [(a, b) for a, b in pairwise(rows) if b[0] - a[0] >= enough]
        rises = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in worked]
        if mean <= 0 or min(rises) < STEADY * mean or sum(rises[-2:]) / 2 < GOES_ON * mean:
            return None
        return self.rise(since, least)

    def rise(self, since: float, least: int = LEAST) -> Climb | None:
        """The floor of its first part since that moment and of the last, whatever lies between; None on little."""
        parts = self._parts(since, least)
        if not parts:
            return None
        floors = [median(low for _, low in part) for part in (parts[0], parts[-1])]
        middles = [median(t for t, _ in part) for part in (parts[0], parts[-1])]
        return Climb(floors[0], floors[1], middles[1] - middles[0], parts[-1][-1][1])

    def _parts(self, since: float, least: int) -> list[list[tuple[float, float]]]:
        """When and how low, in parts of one size; none where there are too few."""
        if self.begin is None:
            return []
        rows = [
            (self.begin + (place + 0.5) * self.width, low)
            for place, low in zip(self.places, self.low, strict=True)
            if self.begin + place * self.width >= since
        ]
        size = len(rows) // PARTS
        if size < least:
            return []
        rows = rows[len(rows) - PARTS * size :]
        return [rows[at : at + size] for at in range(0, PARTS * size, size)]
