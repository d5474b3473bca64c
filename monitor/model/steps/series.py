"""A run's numbers in bounded memory: curves that keep the whole run, and quantiles. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from monitor import step_columns
from monitor.step_columns import Floats, Integers
from trainhooks.protocol.vocabulary import EPISODE_RETURN, HOOKS_METRICS, LEARNING_SIGNALS, LOSS, REWARD_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self


MAX_BUCKETS = 512  # twice the columns of a wide terminal, in braille dots
CHUNK = 512  # steps whose values are digested at once, by one call for all of them

_NAN = math.nan


@dataclass(frozen=True, slots=True)
class Curve:
    """A bounded curve over steps (or readings): for each bucket its first x, and the mean, low and high in it.

    A mean of nan is a gap: every value of that bucket was missing or non-finite.
    """

    x: Sequence[float] = ()
    mean: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    width: int = 1  # steps a bucket
    end: float | None = None  # the last x: the last bucket may not be full yet


Summary = tuple[int, float, float, float]  # of finite values: count, sum, minimum, maximum


def _finite(values: Sequence[float]) -> tuple[Sequence[float], float]:
    """Return the values that are finite, and their sum."""
    total = step_columns.total(values)
    if total - total == 0.0:
        return values, total
    values = [value for value in values if math.isfinite(value)]
    return values, step_columns.total(values)


def _summary(values: Sequence[float], total: float) -> Summary:
    # Of 0.0 and -0.0, which are equal, either may be returned.
    return (len(values), total, min(values) + 0.0, max(values) + 0.0) if values else (0, total, _NAN, _NAN)


def _mean(count: int, total: float, low: float, high: float) -> float:
    """Return the mean, within `low` and `high` even where the sum overflows; nan without values."""
    return max(low, min(high, total / count)) if count else _NAN


def _joined(join: Callable[[Any, Any], Any], column: Floats | Integers, first: int) -> Iterator[Any]:
    """Yield a column with its neighbors joined in pairs, from `first` on; what has no partner stays as it is."""
    pairs = map(join, column[first::2], column[first + 1 :: 2])
    return chain(column[:first], pairs, column[-1:] if (len(column) - first) % 2 else ())


@dataclass(slots=True)
class Series:
    """Values over steps, as (mean, min, max) of buckets of 1, 2, 4... steps, aligned to absolute step numbers.

    A bucket's edges never move, so a chart of it shifts only when a bucket is complete.
    """

    width: int = 1
    index: Integers = field(default_factory=Integers)  # bucket number: step // width
    count: Integers = field(default_factory=Integers)
    total: Floats = field(default_factory=Floats)
    low: Floats = field(default_factory=Floats)
    high: Floats = field(default_factory=Floats)
    mean: Floats = field(default_factory=Floats)  # kept, because every view needs all of them
    newest: int = 0  # the highest x so far

    def extend(self, xs: Sequence[int], values: step_columns.Column, whole: Summary | None = None) -> None:
        """Add values; `xs` and `values` have the same length. Any order will do; rising `xs` are fastest.

        Args:
            whole: the summary of all these values, where it is already known.
        """
        at, end = 0, len(xs)
        rising = type(xs) is range or xs == sorted(xs)
        self.newest = max(self.newest, xs[-1] if rising and xs else max(xs, default=0))
        if whole is not None and rising and xs[0] // self.width == xs[-1] // self.width:
            self._put(xs[0] // self.width, whole)
            return
        values = step_columns.as_list(values)
        while at < end:
            bucket = xs[at] // self.width
            if rising:
                upto = end if xs[-1] // self.width == bucket else bisect_left(xs, (bucket + 1) * self.width, at)
            else:
                upto = at + 1
                while upto < end and xs[upto] // self.width == bucket:
                    upto += 1
            self._put(bucket, _summary(*_finite(values[at:upto])))
            at = upto

    def extend_many(self, first: int, values: step_columns.Column, size: int) -> None:
        """Add an array of consecutive steps from a multiple of `size` up to another one.

        Values for a wider bucket are added up in parts of that size.
        """
        at, end = 0, len(values)
        self.newest = max(self.newest, first + end - 1)
        while at < end:
            part = min(self.width, size)
            upto = at + max(1, MAX_BUCKETS - len(self.index)) * self.width
            aligned = (first + at) & -(first + at)
            if 0 < aligned < part:  # the width has doubled within a bucket
                part, upto = aligned, at + aligned
            at += part * self._put_parts((first + at) // part, part, step_columns.summaries(values[at:upto], part))

    def _put_parts(self, number: int, part: int, pieces: step_columns.Pieces) -> int:
        """Add pieces of `part` steps, from piece `number` on, while the width stays; return how many."""
        width, done, count = self.width, 0, len(pieces)
        group = max(1, width // part)
        while done < count and self.width == width:
            bucket, into = divmod(number + done, group)
            many = min(MAX_BUCKETS - len(self.index), (count - done) // group)
            if into or many <= 0 or (self.index and bucket <= self.index[-1]):
                self._put((number + done) * part // width, pieces.one(done))
                done += 1
                continue
            wholes = pieces.joined(done, many, group)
            self.index.extend(range(bucket, bucket + many))
            self.count.extend(wholes.counts())
            self.total.extend(wholes.total.tolist())
            self.low.extend(wholes.low.tolist())
            self.high.extend(wholes.high.tolist())
            self.mean.extend(map(_mean, self.count[-many:], self.total[-many:], self.low[-many:], self.high[-many:]))
            done += many * group
        return done

    def _put(self, bucket: int, values: Summary) -> None:
        count, total, low, high = values
        place = self._place(bucket)
        while len(self.index) >= MAX_BUCKETS and (place == len(self.index) or self.index[place] != bucket):
            self._halve()
            bucket //= 2
            place = self._place(bucket)
        if place < len(self.index) and self.index[place] == bucket:
            self._merge(place, count, total, low, high)
            return
        self.index.insert(place, bucket)
        self.count.insert(place, count)
        self.total.insert(place, total)
        self.low.insert(place, low)
        self.high.insert(place, high)
        self.mean.insert(place, _mean(*values))

    def _place(self, bucket: int) -> int:
        if not self.index or bucket > self.index[-1]:
            return len(self.index)
        return bisect_left(self.index, bucket)  # most often the last; a value may also come late

    def _merge(self, place: int, count: int, total: float, low: float, high: float) -> None:
        if count == 0:
            return
        if self.count[place] == 0:
            self.low[place], self.high[place] = low, high
        else:
            self.low[place] = min(self.low[place], low)
            self.high[place] = max(self.high[place], high)
        self.count[place] += count
        self.total[place] += total
        self.mean[place] = _mean(self.count[place], self.total[place], self.low[place], self.high[place])

    def _halve(self) -> None:
        """Join buckets in pairs: half as many of twice the width."""
        if self._full():
            self._halve_pairs()
            return
        old = (self.index, self.count, self.total, self.low, self.high)
        self.index, self.count = Integers(), Integers()
        self.total, self.low, self.high, self.mean = Floats(), Floats(), Floats(), Floats()
        self.width *= 2
        for number, count, total, low, high in zip(*old, strict=True):
            if self.index and self.index[-1] == number // 2:
                self._merge(len(self.index) - 1, count, total, low, high)
                continue
            self.index.append(number // 2)
            self.count.append(count)
            self.total.append(total)
            self.low.append(low)
            self.high.append(high)
            self.mean.append(_mean(count, total, low, high))

    def _full(self) -> bool:
        """Return whether the buckets are consecutive and all of them have values."""
        return self.index[-1] - self.index[0] == len(self.index) - 1 and 0 not in self.count

    def _halve_pairs(self) -> None:
        """Do the same faster, where all buckets to be joined are next to each other."""
        self.width *= 2
        first = self.index[0] % 2  # 1: the first bucket has no partner, as steps begin at 1
        self.index = Integers(range(self.index[0] // 2, self.index[-1] // 2 + 1))
        self.count = Integers(_joined(add, self.count, first))
        self.total = Floats(_joined(add, self.total, first))
        self.low = Floats(_joined(min, self.low, first))
        self.high = Floats(_joined(max, self.high, first))
        self.mean = Floats(map(_mean, self.count, self.total, self.low, self.high))

    def curve(self) -> Curve:
        """Return the whole run as a curve; a bucket without a finite value is a gap (nan)."""
        x = Floats(number * self.width for number in self.index)
        means = Floats(self.mean), Floats(self.low), Floats(self.high)
        return Curve(x, *means, self.width, float(self.newest) if x else None)


STEP = 1.02  # the width of bins as a ratio: quantiles are exact to 1%
_LOG_STEP = math.log(STEP)


def _edge(bin_: int) -> float:
    """Return the lower edge of a bin."""
    return math.exp(bin_ * _LOG_STEP)


def _bin(value: float) -> int:
    """Return the bin whose edges a value lies between: its logarithm, rounded, may point beside it."""
    bin_ = int(math.log(value) / _LOG_STEP // 1)
    return bin_ - (value < _edge(bin_)) + (value >= _edge(bin_ + 1))


@dataclass(slots=True)
class Quantiles:
    """Quantiles of positive numbers in bounded memory: counts in bins 2% wide (as in DDSketch, VLDB 2019)."""

    bins: dict[int, int] = field(default_factory=dict)
    zeros: int = 0

    def extend(self, values: step_columns.Column) -> None:
        """Add values. They are sorted first, so that each bin takes one lookup and not one for each value."""
        ordered, bins = step_columns.ordered(values), self.bins
        at, end = bisect_right(ordered, 1e-12), len(ordered)
        self.zeros += at
        while at < end:
            bin_ = _bin(float(ordered[at]))
            upto = bisect_left(ordered, _edge(bin_ + 1), at + 1)
            bins[bin_] = bins.get(bin_, 0) + upto - at
            at = upto

    def largest(self, count: int) -> list[float]:
        """Return the `count` largest numbers, the largest first, each as the middle of its bin."""
        rows: list[float] = []
        for bin_ in sorted(self.bins, reverse=True):
            if len(rows) >= count:
                break
            rows += [math.exp((bin_ + 0.5) * _LOG_STEP)] * min(self.bins[bin_], count - len(rows))
        return rows + [0.0] * min(self.zeros, count - len(rows))

    def count(self, least: float) -> int:
        """Return how many numbers are in the bin of `least` or above it."""
        lowest = _bin(least)
        return sum(count for bin_, count in self.bins.items() if bin_ >= lowest)

    def at(self, *shares: float) -> list[float]:
        """Return the values below which these shares of the numbers lie; 0.0 where there are none."""
        total = self.zeros + sum(self.bins.values())
        out = []
        ordered = sorted(self.bins.items())
        for share in shares:
            rank = share * max(0, total - 1)
            seen = self.zeros
            quantile = 0.0
            if rank >= seen:
                for bin_, count in ordered:
                    seen += count
                    if rank < seen:
                        quantile = math.exp((bin_ + 0.5) * _LOG_STEP)
                        break
            out.append(quantile)
        return out


@dataclass(slots=True)
class Column:
    """One figure over the steps of a run: a curve and sums. New values wait until those of a chunk of steps are there.

    Chunks are aligned as the buckets of the curve are, so that each lies in one, or is made of whole ones.
    """

    xs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sum: float = 0.0
    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    nonfinite: int = 0
    last: float = _NAN
    series: Series = field(default_factory=Series)

    def add(self, x: int, value: float) -> None:
        if self.xs and self.xs[0] // CHUNK != x // CHUNK:
            self.digested()
        self.xs.append(x)
        self.values.append(value)
        if len(self.values) >= CHUNK:
            self.digested()

    def extend(self, xs: Sequence[int], values: step_columns.Column) -> None:
        """Add values. The result is as if they were added one by one: chunks have the same boundaries."""
        if step_columns.is_array(values):
            xs, values = self._many(xs, values)
        if type(xs) is not range and xs != sorted(xs):
            for x, value in zip(xs, values, strict=True):
                self.add(x, value)
            return
        at, end = 0, len(values)
        while at < end:
            if self.xs and self.xs[0] // CHUNK != xs[at] // CHUNK:
                self.digested()
            upto = bisect_left(xs, (xs[at] // CHUNK + 1) * CHUNK, at, min(end, at + CHUNK - len(self.values)))
            self.xs += xs[at:upto]
            self.values += values[at:upto]
            at = upto
            if len(self.values) >= CHUNK:
                self.digested()

    def _many(self, xs: Sequence[int], values: step_columns.Column) -> tuple[Sequence[int], list[float]]:
        """Add an array up to the end of its last whole chunk; return the rest."""
        first = -xs[0] % CHUNK
        if not first and self.xs and self.xs[0] // CHUNK == xs[0] // CHUNK:
            first = CHUNK  # repeated steps at the begin of a chunk: they belong to the waiting chunk
        end = first + (len(xs) - first) // CHUNK * CHUNK
        wholes = step_columns.summaries(values[first:end], CHUNK) if type(xs) is range and first < end else None
        if wholes is None or not wholes.finite():
            return xs, step_columns.as_list(values)
        self.extend(xs[:first], step_columns.as_list(values[:first]))
        self.digested()
        self._put_many(xs[first], values[first:end], wholes)
        self._sketch(values[first:end])
        return xs[end:], step_columns.as_list(values[end:])

    def _put_many(self, first: int, values: step_columns.Column, wholes: step_columns.Pieces) -> None:
        """Add an array of finite values in whole chunks, whose sums are in `wholes`."""
        self.last = float(values[-1])
        self.series.extend_many(first, values, CHUNK)
        self.count += len(values)
        self.sum = step_columns.total(wholes.total, self.sum)
        self.least = min(self.least, float(wholes.low.min()))
        self.most = max(self.most, float(wholes.high.max()))

    def digested(self) -> Self:
        """Return this column with nothing waiting; call it before reading its figures."""
        if self.values:
            xs, values = self.xs, self.values
            self.xs, self.values = [], []
            self._digest(xs, values)
        return self

    def _digest(self, xs: Sequence[int], values: Sequence[float]) -> None:
        finite, total = _finite(values)
        self._put(xs, values, _summary(finite, total))
        self._sketch(finite)

    def _put(self, xs: Sequence[int], values: step_columns.Column, whole: Summary) -> None:
        count, total, low, high = whole
        self.last = float(values[-1])
        self.series.extend(xs, values, whole)
        self.nonfinite += len(values) - count
        self.count += count
        self.sum += total
        if count:
            self.least = min(self.least, low)
            self.most = max(self.most, high)

    def _sketch(self, values: step_columns.Column) -> None:
        """Take the finite values into further figures of a subclass."""


@dataclass(slots=True)
class Durations(Column):
    """A column of seconds with quantiles."""

    quantiles: Quantiles = field(default_factory=Quantiles)

    def spread(self) -> tuple[float, float, float]:
        """Return median, p95 and maximum, in seconds; a quantile is never above the maximum."""
        p50, p95 = (min(quantile, self.most) for quantile in self.quantiles.at(0.5, 0.95))
        return p50, p95, max(0.0, self.most)

    def _sketch(self, values: step_columns.Column) -> None:
        self.quantiles.extend(values)


@dataclass(slots=True)
class Spread(Durations):
    """Seconds with quantiles but without a curve, which would take most of the memory for each rank."""

    def _put(self, xs: Sequence[int], values: step_columns.Column, whole: Summary) -> None:
        """Keep no curve."""

    def _put_many(self, first: int, values: step_columns.Column, wholes: step_columns.Pieces) -> None:
        """Keep no curve."""


# The order in which metrics are shown: the usual ones first, then others of the program, then those of the hooks.

T = TypeVar("T")

_WORDS = re.compile(r"[a-z]+")


@lru_cache(maxsize=4096)
def metric_place(name: str) -> tuple[int, int]:
    """Return the rank of a metric in that order; metrics of equal rank keep the order in which they came."""
    lower = name.lower()
    last = lower.rsplit("/", 1)[-1]
    if last in HOOKS_METRICS or REWARD_SECONDS in lower:
        return 3, 0
    if last == EPISODE_RETURN:
        return 0, 0
    if last in LEARNING_SIGNALS:
        return 0, LEARNING_SIGNALS.index(last)
    words = _WORDS.findall(lower)
    for index, wanted in enumerate(LEARNING_SIGNALS):
        if wanted in words or (len(wanted) > 3 and wanted in lower):
            return 1, index
    return 2, 0


def comes_by_itself(name: str) -> bool:
    """Return whether this metric comes from the hooks rather than from the program."""
    return name in (LOSS, EPISODE_RETURN) or metric_place(name)[0] == 3


def ordered(metrics: Mapping[str, T]) -> dict[str, T]:
    return {name: metrics[name] for name in sorted(metrics, key=metric_place)}
