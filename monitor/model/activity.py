"""What a GPU's readings were over the run, in bounded memory, so that they can be told of a part of it. Pure.

Steps and readings come from different journals, in any order between them: so readings are kept by when they came, and
those of the steps are picked when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainhooks.events import Gpu

# What is told of the steps: a driver's figures of the last moment, or means of the second before.
READINGS = (
    "utilization", "memory_used", "temperature", "power", "sm_clock", "sm_active", "sm_occupancy", "tensor_active",
    "memory_active", "pcie_rx", "pcie_tx",
)  # fmt: skip
MAX_BUCKETS = 600  # ten minutes at one reading a second; a day in buckets of four minutes


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
class Activity:
    """A GPU's readings in buckets of 1, 2, 4... seconds."""

    width: float = 1.0
    buckets: dict[int, dict[str, Sum]] = field(default_factory=dict)  # t // width -> figure -> its readings

    def add(self, gpu: Gpu) -> None:
        """Take a whole reading in."""
        place = int(gpu.t // self.width)
        if place not in self.buckets and len(self.buckets) >= MAX_BUCKETS:
            self._halve()
            place = int(gpu.t // self.width)
        bucket = self.buckets.setdefault(place, {})
        for name in READINGS:
            value = getattr(gpu, name)
            if value is not None:
                bucket.setdefault(name, Sum()).add(Sum(1, value, value, value))

    def within(self, stretches: Sequence[tuple[float, float]]) -> dict[str, Range]:
        """The figures of the readings that lie wholly in one of these stretches."""
        found: dict[str, Sum] = {}
        for place, bucket in self.buckets.items():
            low, high = place * self.width, (place + 1) * self.width
            if any(since <= low and high <= until for since, until in stretches):
                for name, row in bucket.items():
                    found.setdefault(name, Sum()).add(row)
        return {name: Range(row.total / row.count, row.low, row.high, row.count) for name, row in found.items()}

    def _halve(self) -> None:
        old, self.buckets, self.width = self.buckets, {}, 2 * self.width
        for place, bucket in old.items():
            into = self.buckets.setdefault(place // 2, {})
            for name, row in bucket.items():
                into.setdefault(name, Sum()).add(row)

    def over(self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()) -> dict[str, Range]:
        """The figures of the readings that lie wholly between two moments, as far as the buckets tell them apart.

        Args:
            without: stretches whose readings are left out, where readings remain.
        """
        told = self._over(begin, end, without) if without else {}
        return told or self._over(begin, end, ())

    def tells_apart(self, begin: float, end: float, without: Sequence[tuple[float, float]]) -> bool:
        """Whether readings remain where those stretches are left out."""
        return bool(self._over(begin, end, without))

    def _over(self, begin: float, end: float, without: Sequence[tuple[float, float]]) -> dict[str, Range]:
        found: dict[str, Sum] = {}
        for place, bucket in self.buckets.items():
            low, high = place * self.width, (place + 1) * self.width
            if low >= begin and high <= end and not any(low < until and since < high for since, until in without):
                for name, row in bucket.items():
                    found.setdefault(name, Sum()).add(row)
        return {name: Range(row.total / row.count, row.low, row.high, row.count) for name, row in found.items()}
