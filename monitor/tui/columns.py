"""A curve folded into the columns of a chart.

Column edges lie at multiples of a round number of steps, counted from step 0. So a new step changes the last column
only, and a chart that has not reached its right end is drawn again in one column, not in all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from monitor.model.report import Curve

_ROUND = (1, 2, 3, 4, 5, 6, 8)


def _round_numbers() -> Iterator[int]:
    """1, 2, 3, 4, 5, 6, 8, 10, 20, 30, ...: no two neighbours are further apart than a factor of two."""
    for power in range(16):
        for number in _ROUND:
            yield number * 10**power


@dataclass(frozen=True)
class Grid:
    """Which steps share a column: `steps` to a column, or `stretch` columns to each when there are few."""

    first: int  # number of the first column's bucket, counted from step 0
    count: int  # buckets
    steps: int
    stretch: int = 1

    def bucket(self, x: float) -> int:
        return int(x // self.steps) - self.first

    def column(self, bucket: int) -> int:
        """The middle column of a bucket."""
        return bucket * self.stretch + self.stretch // 2

    @property
    def columns(self) -> int:
        return self.count * self.stretch

    @property
    def start(self) -> int:
        return self.first * self.steps


@dataclass(frozen=True)
class Bucket:
    mean: float  # nan: nothing finite in it
    low: float
    high: float


def grid(curve: Curve, columns: int) -> Grid | None:
    """The finest grid on which all of `curve` fits into `columns`; None for an empty curve or no room."""
    if not curve.x or columns <= 0:
        return None
    base = max(1, curve.width)
    first, last = curve.x[0], curve.x[-1]
    for factor in _round_numbers():
        steps = base * factor
        begin = int(first // steps)
        count = int(last // steps) - begin + 1
        if count <= columns:
            room = columns // count
            stretch = 1 if factor > 1 else max(value for value in _ROUND if value <= room)
            return Grid(begin, count, steps, stretch)
    return None


def _slices(curve: Curve, layout: Grid) -> Iterator[tuple[int, int]]:
    """For every bucket of the grid, where its part of the curve begins and ends. A curve is sorted by x."""
    begin = bisect_left(curve.x, layout.start)
    for index in range(1, layout.count + 1):
        end = bisect_left(curve.x, (layout.first + index) * layout.steps, begin)
        yield begin, end
        begin = end


def fold(curve: Curve, layout: Grid) -> list[Bucket | None]:
    """One bucket a column group; None where the curve says nothing at all, a mean of nan where all was non-finite."""
    buckets: list[Bucket | None] = []
    for begin, end in _slices(curve, layout):
        if begin == end:
            buckets.append(None)
            continue
        total = sum(curve.mean[begin:end])
        if math.isfinite(total):
            low, high = min(curve.low[begin:end]), max(curve.high[begin:end])
            buckets.append(Bucket(total / (end - begin), low, high))
        else:
            buckets.append(_finite_part(curve, begin, end))
    return buckets


def _finite_part(curve: Curve, begin: int, end: int) -> Bucket:
    """What is finite among the values from `begin` to `end`, of which some are not."""
    kept = [index for index in range(begin, end) if math.isfinite(curve.mean[index])]
    if not kept:
        return Bucket(math.nan, math.nan, math.nan)
    mean = sum(curve.mean[index] / len(kept) for index in kept)
    lows = [curve.low[index] for index in kept if math.isfinite(curve.low[index])]
    highs = [curve.high[index] for index in kept if math.isfinite(curve.high[index])]
    return Bucket(mean, min(lows, default=mean), max(highs, default=mean))


def fold_means(curve: Curve, layout: Grid) -> list[float]:
    """The mean of each bucket, 0 where nothing is known: heights to be stacked."""
    means = []
    for begin, end in _slices(curve, layout):
        mean = sum(curve.mean[begin:end]) / (end - begin) if begin < end else 0.0
        if not math.isfinite(mean):
            mean = _finite_part(curve, begin, end).mean
        means.append(mean if mean > 0 and math.isfinite(mean) else 0.0)
    return means


def round_up(value: float) -> float:
    """The next number with one or two digits that reads well on an axis; a limit that moves seldom, too."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((part * power for part in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if part * power >= value), 10 * power)


def top_limit(values: list[float]) -> float:
    """An upper limit for stacked values: the highest, unless a few stand so far out that they flatten the rest."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    usual = finite[min(len(finite) - 1, int(len(finite) * 0.95))] if len(finite) >= 8 else finite[-1]
    middle = finite[len(finite) // 2]
    highest = finite[-1]
    # A step twice as long as the usual long one still fits; what lies beyond is cut and marked.
    limit = highest if highest <= 2.0 * usual else max(1.5 * usual, 2.0 * middle)
    return round_up(limit) if limit > 0 else 1.0


def positions(numbers: list[int], layout: Grid) -> set[int]:
    """The buckets in which the steps `numbers` lie."""
    return {bucket for number in numbers if 0 <= (bucket := layout.bucket(number)) < layout.count}
