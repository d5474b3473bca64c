"""A run's numbers in bounded memory: curves that keep the whole run, and quantiles. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from monitor.model.history import History
from monitor.model.steps.value_sample import ValueSample
from trainhooks.protocol.vocabulary import EPISODE_RETURN, HOOKS_METRICS, LEARNING_SIGNALS, LOSS, REWARD_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_BUCKETS = 512  # twice the columns of a wide terminal, in braille dots
MAX_WAITING = 512  # values that wait to be added together, by one call for all of them

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
    count: Sequence[float] = ()  # finite values a bucket; empty where that is not known
    # Single values, those of all steps or a sample of them; None where they are not known.
    sample: ValueSample | None = field(default=None, compare=False, repr=False)


STEP = 1.02  # the width of bins as a ratio: quantiles are exact to 1%
_LOG_STEP = math.log(STEP)
LEAST = 1e-12  # smaller numbers count as 0


def _bins(values: FloatArray) -> IntArray:
    """Return the bin of each positive value."""
    return np.floor(np.log(values) / _LOG_STEP).astype(np.int64)


@dataclass(slots=True)
class Quantiles:
    """Quantiles of positive numbers in bounded memory: counts in bins 2% wide (as in DDSketch, VLDB 2019)."""

    bins: dict[int, int] = field(default_factory=dict)
    zeros: int = 0

    def extend(self, values: FloatArray) -> None:
        positive = values[values > LEAST]
        self.zeros += len(values) - len(positive)
        if not len(positive):
            return
        numbers = _bins(positive)
        least = int(numbers.min())
        counts = np.bincount(numbers - least)
        found = np.flatnonzero(counts)
        for number, count in zip((found + least).tolist(), counts[found].tolist(), strict=True):
            self.bins[number] = self.bins.get(number, 0) + count

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
        lowest = int(_bins(np.array([least]))[0])
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
    """One figure over the steps of a run: a curve and sums. Few new values wait for more, or until somebody asks."""

    xs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sum: float = 0.0
    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    nonfinite: int = 0
    last: float = math.nan
    newest: int = 0  # the highest step so far
    opening: tuple[int, float] | None = None  # the first step so far, with its value
    history: History = field(default_factory=lambda: History(MAX_BUCKETS))
    sample: ValueSample = field(default_factory=ValueSample)

    def add(self, x: int, value: float) -> None:
        self.xs.append(x)
        self.values.append(value)
        if len(self.values) >= MAX_WAITING:
            self.settled()

    def extend(self, xs: IntArray, values: FloatArray) -> None:
        """Add values of these steps, in any order; rising ones are fastest."""
        if len(values) + len(self.values) < MAX_WAITING:
            self.xs += xs.tolist()
            self.values += values.tolist()
            return
        self.settled()
        self._add(xs, values)

    def settled(self) -> Self:
        """Return this column with nothing waiting; call it before reading its figures."""
        if self.values:
            xs, values = np.array(self.xs, np.int64), np.array(self.values, float)
            self.xs, self.values = [], []
            self._add(xs, values)
        return self

    def _add(self, xs: IntArray, values: FloatArray) -> None:
        self.last = float(values[-1])
        self.newest = max(self.newest, int(xs.max()))
        earliest = int(xs.argmin())
        if self.opening is None or xs[earliest] < self.opening[0]:
            self.opening = int(xs[earliest]), float(values[earliest])
        is_finite = np.isfinite(values)
        finite = values if is_finite.all() else values[is_finite]
        self._keep_curve(xs, values, is_finite)
        self.nonfinite += len(values) - len(finite)
        self.count += len(finite)
        if len(finite):
            with np.errstate(over="ignore"):
                self.sum += float(finite.sum())
            self.least = min(self.least, float(finite.min()))
            self.most = max(self.most, float(finite.max()))
            self._keep_quantiles(finite)

    def _keep_curve(self, xs: IntArray, values: FloatArray, is_finite: BoolArray) -> None:
        if is_finite.all():
            self.sample.add(xs, values)
            self.history.add(xs, {"count": np.ones(len(values)), "total": values, "low": values, "high": values})
            return
        self.sample.add(xs[is_finite], values[is_finite])
        known = np.where(is_finite, values, np.nan)
        totals = np.where(is_finite, values, 0.0)
        self.history.add(xs, {"count": is_finite.astype(float), "total": totals, "low": known, "high": known})

    def _keep_quantiles(self, finite: FloatArray) -> None:
        """Take the finite values into further figures of a subclass."""

    def curve(self) -> Curve:
        """Return the whole run as a curve; a bucket without a finite value is a gap (nan)."""
        history = self.settled().history
        count, total, low, high = (history.of(name) for name in ("count", "total", "low", "high"))
        with np.errstate(all="ignore"):
            mean = np.clip(total / count, low, high)  # within them even where the sum overflows
        x = (history.index * history.width).astype(float)
        end = float(self.newest) if len(x) else None
        sample = replace(self.sample)  # as it is now: its arrays are replaced, never changed
        figures = mean.tolist(), low.tolist(), high.tolist()
        return Curve(x.tolist(), *figures, history.width, end, count.tolist(), sample)


def without_first(curve: Curve, opening: tuple[int, float] | None, step: int) -> Curve:
    """Return the curve with the mean of its first bucket without the run's first step, if it has others.

    The first step starts up what all others use: it would raise that mean a hundredfold, and flatten a chart of it.
    """
    if opening is None or opening[0] != step or not curve.count or not math.isfinite(opening[1]):
        return curve
    count = curve.count[0]
    if count < 2:
        return curve
    mean = (curve.mean[0] * count - opening[1]) / (count - 1)
    return replace(curve, mean=[min(curve.high[0], max(curve.low[0], mean)), *curve.mean[1:]])


@dataclass(slots=True)
class Durations(Column):
    """A column of seconds with quantiles."""

    quantiles: Quantiles = field(default_factory=Quantiles)

    def spread(self) -> tuple[float, float, float]:
        """Return median, p95 and maximum, in seconds; a quantile is never above the maximum."""
        p50, p95 = (min(quantile, self.most) for quantile in self.quantiles.at(0.5, 0.95))
        return p50, p95, max(0.0, self.most)

    def _keep_quantiles(self, finite: FloatArray) -> None:
        self.quantiles.extend(finite)


@dataclass(slots=True)
class Spread(Durations):
    """Seconds with quantiles but without a curve, which would take most of the memory for each rank."""

    def _keep_curve(self, xs: IntArray, values: FloatArray, is_finite: BoolArray) -> None:
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
