"""A GPU's readings over the run, in bounded memory: means and ranges over any part of it. Pure.

Steps and readings come from different journals in any order. So readings are kept by time, and those during steps
are selected when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import le

from trainhooks.protocol.events import Gpu

# The driver's newest values, or means of the last second.
READINGS = (
    "utilization", "memory_used", "temperature", "power", "sm_clock", "sm_active", "sm_occupancy", "tensor_active",
    "memory_active", "pcie_rx", "pcie_tx",
)  # fmt: skip
MAX_BUCKETS = 600  # ten minutes at one reading a second; a day in buckets of four minutes
MAX_SUMS = 16  # different questions whose sums are kept; a view asks about six of each GPU


@dataclass(frozen=True, slots=True)
class Range:
    """One figure of a GPU over the steps."""

    mean: float
    min: float
    max: float
    readings: int


@dataclass(slots=True)
class Sum:
    """Readings of one figure in one bucket of time."""

    count: int = 0
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, other: Sum) -> None:
        if not self.count:
            self.low, self.high = other.low, other.high
        self.count += other.count
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass(slots=True)
class _Settled:
    """The sums of all buckets before one that count for a question; no further readings fall into these."""

    before: int
    sums: dict[str, Sum]


class _Unsaved:
    """What is derived from the buckets: a base class, because only the fields of a dataclass are saved."""

    __slots__ = ("_settled",)
    _settled: dict[Hashable, _Settled]


@dataclass
class Activity(_Unsaved):
    """A GPU's readings in buckets of 1, 2, 4... seconds.

    A view asks the same questions of a history that only grows, so the sums so far are kept.
    """

    width: float = 1.0
    buckets: dict[int, dict[str, Sum]] = field(default_factory=dict)  # t // width -> figure -> its readings

    def __post_init__(self) -> None:
        self._settled = {}

    def add(self, gpu: Gpu) -> None:
        """Add a complete reading."""
        place = int(gpu.t // self.width)
        if place not in self.buckets and len(self.buckets) >= MAX_BUCKETS:
            self._halve()
            place = int(gpu.t // self.width)
        late = bool(self.buckets) and place < next(reversed(self.buckets))  # two recorders at once
        bucket = self.buckets.setdefault(place, {})
        if late:
            self.buckets = dict(sorted(self.buckets.items()))
            self._settled.clear()
        for name in READINGS:
            value = getattr(gpu, name)
            if value is not None:
                bucket.setdefault(name, Sum()).add(Sum(1, value, value, value))

    def _halve(self) -> None:
        old, self.buckets, self.width = self.buckets, {}, 2 * self.width
        self._settled.clear()
        for place, bucket in old.items():
            into = self.buckets.setdefault(place // 2, {})
            for name, row in bucket.items():
                into.setdefault(name, Sum()).add(row)

    def within(self, stretches: Sequence[tuple[float, float]]) -> dict[str, Range]:
        """Return the figures of the buckets that lie wholly in one of these stretches."""
        question = ("within", *stretches)
        return self._summed(question, math.inf, lambda low, high: any(a <= low and high <= b for a, b in stretches))

    def over(self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()) -> dict[str, Range]:
        """Return the figures of the buckets that lie wholly between two moments.

        Args:
            without: stretches whose readings are left out, where readings remain.
        """
        figures = self._over(begin, end, without) if without else {}
        return figures or self._over(begin, end, ())

    def tells_apart(self, begin: float, end: float, without: Sequence[tuple[float, float]]) -> bool:
        """Return whether readings remain where those stretches are left out."""
        return bool(self._over(begin, end, without))

    def _over(self, begin: float, end: float, without: Sequence[tuple[float, float]]) -> dict[str, Range]:
        return self._summed(
            ("over", begin, *without),
            end,
            lambda low, high: begin <= low and not any(low < until and since < high for since, until in without),
        )

    def _summed(self, question: Hashable, end: float, counts: Callable[[float, float], bool]) -> dict[str, Range]:
        """Return the figures of the buckets up to `end` that count, by their begin and end.

        Args:
            question: the same for the same `counts`.
        """
        settled = self._settled.get(question)
        if settled is None or settled.before * self.width > end:
            if len(self._settled) >= MAX_SUMS:
                self._settled.clear()
            settled = self._settled[question] = _Settled(next(iter(self.buckets), 0), {})
        newest = next(reversed(self.buckets), 0)
        later = list(takewhile(partial(le, settled.before), reversed(self.buckets)))
        sums = settled.sums
        for place in reversed(later):
            begin, until = place * self.width, (place + 1) * self.width
            if until > end:
                break
            if place < newest:
                settled.before = place + 1
            else:  # it may still grow
                sums = {name: replace(row) for name, row in sums.items()}
            if counts(begin, until):
                for name, row in self.buckets[place].items():
                    sums.setdefault(name, Sum()).add(row)
        return {name: Range(row.total / row.count, row.low, row.high, row.count) for name, row in sums.items()}
