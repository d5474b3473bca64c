"""A curve folded into the columns of a chart.

Buckets begin at multiples of a round number of steps, counted from step 0, and are as many columns wide as lets all of
them fill the chart. That width moves in few steps: so a new step mostly changes the last column only, and the chart is
drawn again in one column, not in all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from monitor.model.report import Curve

_ROUND = (1, 2, 3, 4, 5, 6, 8)
_PARTS = 16  # of a column: in these the width of a bucket is told
_WIDEST = 8  # columns of a bucket
_BARS = 4  # columns from which on buckets are bars of one width, with a gap between them


def _round_numbers() -> Iterator[int]:
    """1, 2, 3, 4, 5, 6, 8, 10, 20, 30, ...: no two neighbours are further apart than a factor of two."""
    for power in range(16):
        for number in _ROUND:
            yield number * 10**power


@dataclass(frozen=True)
class Grid:
    """Which steps share a bucket, and which columns are a bucket's."""

    first: int  # number of the first bucket, counted from step 0
    count: int  # buckets
    steps: int
    wide: int = _PARTS  # parts of a column a bucket
    last: int = field(default=0, compare=False)  # step

    def bucket(self, x: float) -> int:
        return int(x // self.steps) - self.first

    def edge(self, bucket: int) -> int:
        """The first column of a bucket."""
        return bucket * self.wide // _PARTS

    def column(self, bucket: int) -> int:
        """The middle column of a bucket."""
        return (self.edge(bucket) + self.edge(bucket + 1)) // 2

    @property
    def bars(self) -> bool:
        """Whether there is a free column between two buckets."""
        return self.wide >= _BARS * _PARTS

    @property
    def columns(self) -> int:
        return self.edge(self.count)

    @property
    def start(self) -> int:
        return self.first * self.steps


@dataclass(frozen=True)
class Bucket:
    mean: float  # nan: nothing finite in it
    low: float
    high: float
    count: int = 1  # values of the curve


def ends(curve: Curve) -> tuple[int, int] | None:
    """The first and the last step of a curve."""
    if not curve.x:
        return None
    last = int(curve.x[-1]) + curve.width - 1 if curve.end is None else int(curve.end)
    return max(1, int(curve.x[0])), last


def grid(curve: Curve, columns: int, beside: Curve | None = None) -> Grid | None:
    """The finest grid on which all of `curve` fits into `columns`; None for an empty curve or no room.

    Args:
        beside: a curve of the same steps: the grid holds all of it, too, so that charts beside each other agree.
    """
    if not curve.x or columns <= 0:
        return None
    shown = [curve, beside] if beside is not None and _meet(curve, beside) else [curve]
    base = max(1, *(each.width for each in shown))
    first, last = min(each.x[0] for each in shown), max(each.x[-1] for each in shown)
    newest = max(reach[1] for each in shown if (reach := ends(each)) is not None)
    for factor in _round_numbers():
        steps = base * factor
        begin = int(first // steps)
        count = int(last // steps) - begin + 1
        if count <= columns:
            return Grid(begin, count, steps, _wide(columns * _PARTS // count), newest)
    return None


def _meet(one: Curve, other: Curve) -> bool:
    """Whether they have steps in common: a curve may count in numbers of its own."""
    return bool(one.x and other.x) and one.x[0] <= other.x[-1] and other.x[0] <= one.x[-1]


def _wide(parts: int) -> int:
    """The width of a bucket that has so many parts of a column: one of few, for all is drawn anew when it changes."""
    parts = min(parts, _WIDEST * _PARTS)
    unit = _PARTS if parts >= _BARS * _PARTS else 1 << max(0, parts.bit_length() - 2)
    return parts // unit * unit


def across(values: Sequence[float], layout: Grid, apart: bool = False) -> list[float]:
    """One value a column; where buckets are bars, these may be kept apart."""
    if layout.wide == _PARTS:
        return list(values)
    gap = [0.0] * (apart and layout.bars)
    cells: list[float] = []
    for bucket, value in enumerate(values):
        cells += [value] * (layout.edge(bucket + 1) - layout.edge(bucket) - len(gap)) + gap
    return cells


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
            buckets.append(Bucket(total / (end - begin), low, high, end - begin))
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
