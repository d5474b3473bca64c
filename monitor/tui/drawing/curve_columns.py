"""Fold curves into the columns of a chart.

Buckets begin at multiples of a round number of steps, counted from step 0, and are wide enough to fill the chart. That
width has few possible values: a new step mostly changes only the last column, so only that one is redrawn.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from monitor.arrays import IntArray, np
from monitor.model.steps.series import Curve
from monitor.model.steps.value_sample import ValueSample

# Transformed curves: logarithms, smoothed. Pure.


def logarithms(curve: Curve) -> Curve:
    """Return the decimal logarithms; values of 0 or less become gaps."""

    def finite(values: Sequence[float]) -> list[float]:
        return [math.log10(value) if value > 0 and math.isfinite(value) else math.nan for value in values]

    means = finite(curve.mean)
    lows = [low if math.isfinite(low) else mean for low, mean in zip(finite(curve.low), means, strict=True)]
    sample = curve.sample
    if sample is not None:
        positive = sample.values > 0
        values = np.log10(sample.values[positive])
        sample = replace(sample, steps=sample.steps[positive], values=values)
    figures = means, lows, finite(curve.high)
    return Curve(curve.x, *figures, curve.width, curve.end, sample=sample)


def smoothed(curve: Curve, weight: float) -> Curve:
    """Return the curve smoothed exponentially: `weight` of the previous value stays, debiased as in TensorBoard."""
    out, kept, share = [], 0.0, 0.0
    for mean in curve.mean:
        if math.isfinite(mean):
            kept = weight * kept + (1 - weight) * mean
            share = weight * share + (1 - weight)
        out.append(kept / share if math.isfinite(mean) else math.nan)
    return Curve(curve.x, out, out, out, curve.width, curve.end)


MAX_INNER_TICKS = 3  # labels of steps between the first and the last
MIN_AFTER_FIRST = 2  # values beside the first one, to tell that it is unlike them
MAX_FIRST = 2.0  # times the others' extent: with more, the first would take most of the chart
_ROUND = (1, 2, 3, 4, 5, 6, 8)
_PARTS = 16  # per column: the unit of a bucket's width
_MAX_WIDTH = 8  # columns of a bucket
MIN_ZOOM_COLUMNS = 8  # buckets of a curve: fewer are hardly a chart
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

    def ticks(self, columns: int) -> list[tuple[int, int]]:
        """Return up to three round steps between the first and the last one, each with its column, evenly apart."""
        begin, end = max(1, self.start), self.last
        for number in _round_numbers():
            rounds = range((begin // number + 1) * number, end, number)
            if number >= self.steps and len(rounds) <= MAX_INNER_TICKS:
                places = [(step, self.column(self.bucket(step))) for step in rounds]
                return [place for place in places if place[1] < columns]
        return []

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


@dataclass(frozen=True)
class Zoom:
    """The part of the steps that all charts show: so many of them, up to one."""

    steps: int
    last: int | None = None  # None: up to the newest, however many there will be

    def span(self, newest: int) -> tuple[int, int]:
        """Return the first and the last step that are shown of a run that has come to `newest`."""
        last = newest if self.last is None else self.last
        return last - self.steps + 1, last


def zoomed(curve: Curve, now: Zoom | None, by: float, at: int | None = None) -> Zoom | None:
    """Return the zoom with `by` times as many steps; None where that is all of them.

    Args:
        curve: of all steps.
        at: the step that stays at its place; None: the last one shown.
    """
    reach = ends(curve)
    if reach is None:
        return now
    first, last = now.span(reach[1]) if now is not None else reach
    steps = last - first + 1
    at = last if at is None else min(last, max(first, at))
    least = min(steps, MIN_ZOOM_COLUMNS * curve.width)
    wanted = max(least, round(steps * by)) if by < 1 else max(steps + 1, round(steps * by))
    if wanted > reach[1] - reach[0]:
        return None
    end = round(at + (last - at) * wanted / steps)
    end = min(reach[1], max(end, reach[0] + wanted - 1))
    return Zoom(wanted, None if end >= reach[1] else end)


def grid(curve: Curve, columns: int, beside: Curve | None = None, zoom: Zoom | None = None) -> Grid | None:
    """Return the finest grid on which `curve` fits into `columns`; None for an empty curve or no room.

    Args:
        beside: a second curve that has to fit, so that charts side by side have the same grid; ignored if it shares
            no steps with `curve`.
        zoom: the steps to show; ignored if the curve has none of them.
    """
    if not curve.x or columns <= 0:
        return None
    shown = [curve, beside] if beside is not None and _meet(curve, beside) else [curve]
    base = max(1, *(curve.width for curve in shown))
    first, last = min(curve.x[0] for curve in shown), max(curve.x[-1] for curve in shown)
    newest = max(reach[1] for curve in shown if (reach := ends(curve)) is not None)
    if zoom is not None:
        begin, end = zoom.span(newest)
        if begin <= newest and end >= first:
            first, last, newest = max(first, begin), min(last, end), min(newest, end)
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
    unit = _PARTS if parts >= _BARS * _PARTS else 1 << max(0, parts.bit_length() - 3)
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


# Values in a bucket from which p10 and p90 leave one out at either end: of fewer they are the least and the largest.
MIN_PERCENTILE_VALUES = 11


def _bucket_edges(sample: ValueSample, layout: Grid) -> IntArray:
    """Return where in the sample each bucket begins, and where the last one ends."""
    edges: IntArray = sample.steps.searchsorted((np.arange(layout.count + 1) + layout.first) * layout.steps)
    return edges


def percentiles_known(curve: Curve, layout: Grid) -> bool:
    """Return whether at least half of the buckets have enough single values to tell their p10 and p90."""
    if curve.sample is None or layout.steps < MIN_PERCENTILE_VALUES:
        return False
    counts = np.diff(_bucket_edges(curve.sample, layout))
    enough = np.count_nonzero(counts >= MIN_PERCENTILE_VALUES)
    return bool(0 < np.count_nonzero(counts) <= 2 * enough)


def with_percentiles(buckets: Sequence[Bucket | None], curve: Curve, layout: Grid) -> list[Bucket | None] | None:
    """Return the buckets with p10 and p90 as `low` and `high`, by nearest rank; None where they are not known.

    A bucket with too few values among others is without a band.
    """
    if curve.sample is None or not percentiles_known(curve, layout):
        return None
    edges = _bucket_edges(curve.sample, layout)
    inside = slice(edges[0], edges[-1])
    places, values = curve.sample.steps[inside] // layout.steps, curve.sample.values[inside]
    values = values[np.lexsort((values, places))]  # within their buckets, which are in order already
    edges = edges - edges[0]
    counts = np.diff(edges)
    tenth = (counts - 1) // 10
    lows, highs, enough = edges[:-1] + tenth, edges[1:] - 1 - tenth, counts >= MIN_PERCENTILE_VALUES
    banded: list[Bucket | None] = []
    for bucket, low, high, known in zip(buckets, lows.tolist(), highs.tolist(), enough.tolist(), strict=True):
        if bucket is None:
            banded.append(None)
        elif known:
            banded.append(replace(bucket, low=float(values[low]), high=float(values[high])))
        else:
            banded.append(replace(bucket, low=bucket.mean, high=bucket.mean))
    return banded


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
    """Return an upper limit for stacked values: the highest one, unless a few outliers would flatten the rest.

    The first value is that of a run's first step, which may be one of a few, too.
    """
    known = [value for value in values if math.isfinite(value)]
    if len(known) > MIN_AFTER_FIRST and known[0] > MAX_FIRST * max(known[1:]) > 0:
        known = known[1:]
    finite = sorted(known)
    if not finite:
        return 1.0
    typical = finite[min(len(finite) - 1, int(len(finite) * 0.95))] if len(finite) >= 8 else finite[-1]
    middle = finite[len(finite) // 2]
    highest = finite[-1]
    # Twice the 95th percentile still fits; larger values are cut and marked.
    limit = highest if highest <= 2.0 * typical else max(1.25 * typical, 1.5 * middle)
    return round_up(limit) if limit > 0 else 1.0


def positions(numbers: list[int], layout: Grid) -> set[int]:
    """Return the buckets of the given steps."""
    return {bucket for number in numbers if 0 <= (bucket := layout.bucket(number)) < layout.count}
