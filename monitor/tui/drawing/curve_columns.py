"""Fold curves into the columns of a chart.

Buckets begin at multiples of a round number of steps, counted from step 0, and are wide enough to fill the chart. That
width has few possible values: a new step mostly changes only the last column, so only that one is redrawn.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from monitor.model.steps.series import Curve

# Transformed curves: logarithms, smoothed. Pure.


def logarithms(curve: Curve) -> Curve:
    """Return the decimal logarithms; values of 0 or less become gaps."""

    def finite(values: Sequence[float]) -> list[float]:
        return [math.log10(value) if value > 0 and math.isfinite(value) else math.nan for value in values]

    means = finite(curve.mean)
    lows = [low if math.isfinite(low) else mean for low, mean in zip(finite(curve.low), means, strict=True)]
    return Curve(curve.x, means, lows, finite(curve.high), curve.width, curve.end)


def smoothed(curve: Curve, weight: float) -> Curve:
    """Return the curve smoothed exponentially: `weight` of the previous value stays, debiased as in TensorBoard."""
    out, kept, share = [], 0.0, 0.0
    for mean in curve.mean:
        if math.isfinite(mean):
            kept = weight * kept + (1 - weight) * mean
            share = weight * share + (1 - weight)
        out.append(kept / share if math.isfinite(mean) else math.nan)
    return Curve(curve.x, out, out, out, curve.width, curve.end)


_ROUND = (1, 2, 3, 4, 5, 6, 8)
_PARTS = 16  # per column: the unit of a bucket's width
_MAX_WIDTH = 8  # columns of a bucket
_BARS = 4  # columns from which buckets are bars of equal width, with a gap between them


def _round_numbers() -> Iterator[int]:
    """Yield 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, ...: each at most twice the previous one."""
    for power in range(16):
        for number in _ROUND:
            yield number * 10**power


@dataclass(frozen=True)
class Grid:
    """The buckets of a chart: their steps and their columns."""

    first: int  # number of the first bucket, counted from step 0
    count: int  # buckets
    steps: int  # per bucket
    wide: int = _PARTS  # width of a bucket, in parts of a column
    last: int = field(default=0, compare=False)  # step

    def bucket(self, x: float) -> int:
        """Return the index of the bucket of a step; it may lie outside of the grid."""
        return int(x // self.steps) - self.first

    def edge(self, bucket: int) -> int:
        """Return the first column of a bucket."""
        return bucket * self.wide // _PARTS

    def column(self, bucket: int) -> int:
        """Return the middle column of a bucket."""
        return (self.edge(bucket) + self.edge(bucket + 1)) // 2

    def steps_at(self, column: int) -> range:
        """Return the steps of the bucket at a column; empty outside of the buckets and of the run."""
        bucket = ((column + 1) * _PARTS - 1) // self.wide  # the last one that begins at the column or before
        start = (self.first + bucket) * self.steps
        return range(max(1, start), min(start + self.steps, self.last + 1)) if 0 <= bucket < self.count else range(0)

    @property
    def bars(self) -> bool:
        """Whether there is a free column between buckets."""
        return self.wide >= _BARS * _PARTS

    @property
    def columns(self) -> int:
        return self.edge(self.count)

    @property
    def start(self) -> int:
        return self.first * self.steps


@dataclass(frozen=True)
class Bucket:
    mean: float  # nan: no finite value
    low: float
    high: float
    count: int = 1  # values of the curve


def ends(curve: Curve) -> tuple[int, int] | None:
    """Return the first and the last step of a curve; None for an empty one."""
    if not curve.x:
        return None
    last = int(curve.x[-1]) + curve.width - 1 if curve.end is None else int(curve.end)
    return max(1, int(curve.x[0])), last


def grid(curve: Curve, columns: int, beside: Curve | None = None) -> Grid | None:
    """Return the finest grid on which `curve` fits into `columns`; None for an empty curve or no room.

    Args:
        beside: a second curve that has to fit, so that charts side by side have the same grid; ignored if it shares
            no steps with `curve`.
    """
    if not curve.x or columns <= 0:
        return None
    shown = [curve, beside] if beside is not None and _meet(curve, beside) else [curve]
    base = max(1, *(curve.width for curve in shown))
    first, last = min(curve.x[0] for curve in shown), max(curve.x[-1] for curve in shown)
    newest = max(reach[1] for curve in shown if (reach := ends(curve)) is not None)
    for factor in _round_numbers():
        steps = base * factor
        begin = int(first // steps)
        count = int(last // steps) - begin + 1
        if count <= columns:
            return Grid(begin, count, steps, _wide(columns * _PARTS // count), newest)
    return None


def _meet(one: Curve, other: Curve) -> bool:
    """Return whether two curves have steps in common; metrics may count steps of their own."""
    return bool(one.x and other.x) and one.x[0] <= other.x[-1] and other.x[0] <= one.x[-1]


def _wide(parts: int) -> int:
    """Round the width of a bucket down to one of few values: the whole chart is redrawn when it changes."""
    parts = min(parts, _MAX_WIDTH * _PARTS)
    unit = _PARTS if parts >= _BARS * _PARTS else 1 << max(0, parts.bit_length() - 2)
    return parts // unit * unit


def across(values: Sequence[float], layout: Grid, apart: bool = False) -> list[float]:
    """Return one value per column; with `apart`, bars are separated by an empty column."""
    if layout.wide == _PARTS:
        return list(values)
    gap = [0.0] * (apart and layout.bars)
    cells: list[float] = []
    for bucket, value in enumerate(values):
        cells += [value] * (layout.edge(bucket + 1) - layout.edge(bucket) - len(gap)) + gap
    return cells


def _slices(curve: Curve, layout: Grid) -> Iterator[tuple[int, int]]:
    """Yield the range of indices of each bucket in a curve, which is sorted by x."""
    begin = bisect_left(curve.x, layout.start)
    for index in range(1, layout.count + 1):
        end = bisect_left(curve.x, (layout.first + index) * layout.steps, begin)
        yield begin, end
        begin = end


def fold(curve: Curve, layout: Grid) -> list[Bucket | None]:
    """Return the buckets of the grid; None for one without values, a mean of nan for one without finite values."""
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
    """Return the bucket of the finite values from `begin` to `end`."""
    kept = [index for index in range(begin, end) if math.isfinite(curve.mean[index])]
    if not kept:
        return Bucket(math.nan, math.nan, math.nan)
    mean = sum(curve.mean[index] / len(kept) for index in kept)
    lows = [curve.low[index] for index in kept if math.isfinite(curve.low[index])]
    highs = [curve.high[index] for index in kept if math.isfinite(curve.high[index])]
    return Bucket(mean, min(lows, default=mean), max(highs, default=mean))


def fold_means(curve: Curve, layout: Grid) -> list[float]:
    """Return the mean of each bucket for stacking; 0 where it is unknown or negative."""
    means = []
    for begin, end in _slices(curve, layout):
        mean = sum(curve.mean[begin:end]) / (end - begin) if begin < end else 0.0
        if not math.isfinite(mean):
            mean = _finite_part(curve, begin, end).mean
        means.append(mean if mean > 0 and math.isfinite(mean) else 0.0)
    return means


def round_up(value: float) -> float:
    """Return the next larger number with one or two digits: easy to read on an axis, and stable."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((part * power for part in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if part * power >= value), 10 * power)


def top_limit(values: list[float]) -> float:
    """Return an upper limit for stacked values: the highest one, unless a few outliers would flatten the rest."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    typical = finite[min(len(finite) - 1, int(len(finite) * 0.95))] if len(finite) >= 8 else finite[-1]
    middle = finite[len(finite) // 2]
    highest = finite[-1]
    # Twice the 95th percentile still fits; larger values are cut and marked.
    limit = highest if highest <= 2.0 * typical else max(1.5 * typical, 2.0 * middle)
    return round_up(limit) if limit > 0 else 1.0


def positions(numbers: list[int], layout: Grid) -> set[int]:
    """Return the buckets of the given steps."""
    return {bucket for number in numbers if 0 <= (bucket := layout.bucket(number)) < layout.count}
