"""A run's numbers in bounded memory: curves that keep the whole run, and quantiles. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

from monitor.model.report import Curve

MAX_BUCKETS = 512  # twice the columns of a wide terminal, in braille dots
MAX_PENDING = 512  # values of the open bucket kept before they are summed up

_NAN = math.nan


@dataclass(slots=True)
class Series:
    """Values over steps, as (mean, min, max) of buckets of 1, 2, 4... steps, aligned to absolute step numbers.

    A bucket's edges never move, so a chart of it shifts only when a bucket is complete.
    """

    width: int = 1
    index: list[int] = field(default_factory=list)  # bucket number: step // width
    count: list[int] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    open: int = -1  # number of the bucket that is being filled
    pending: list[float] = field(default_factory=list)

    def add(self, x: int, value: float) -> None:
        bucket = x // self.width
        if bucket != self.open:
            self._turn_to(bucket)
        self.pending.append(value)
        if len(self.pending) >= MAX_PENDING:
            self._sum_up()

    def _turn_to(self, bucket: int) -> None:
        self._sum_up()
        self.open = bucket
        if len(self.index) >= MAX_BUCKETS and (not self.index or bucket > self.index[-1]):
            self._halve()

    def _sum_up(self) -> None:
        """Move the pending values into their bucket."""
        values = self.pending
        if not values:
            return
        self.pending = []
        total = math.fsum(values) if len(values) < 3 else sum(values)
        if total - total != 0.0:  # something in it is nan or infinite
            values = [each for each in values if math.isfinite(each)]
            total = sum(values)
        low, high = (min(values), max(values)) if values else (_NAN, _NAN)
        place = len(self.index) - 1
        if place < 0 or self.index[place] < self.open:
            place += 1
        elif self.index[place] != self.open:  # a value that came late
            place = bisect_left(self.index, self.open)
        if place < len(self.index) and self.index[place] == self.open:
            self._merge(place, len(values), total, low, high)
            return
        self.index.insert(place, self.open)
        self.count.insert(place, len(values))
        self.total.insert(place, total)
        self.low.insert(place, low)
        self.high.insert(place, high)

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

    def _halve(self) -> None:
        """Join buckets in pairs: twice the width, half as many."""
        old = (self.index, self.count, self.total, self.low, self.high)
        self.index, self.count, self.total, self.low, self.high = [], [], [], [], []
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
        self.open //= 2

    def curve(self) -> Curve:
        """The whole run as a curve; a bucket without a finite value is a gap (nan)."""
        self._sum_up()
        means = [t / c if c else _NAN for t, c in zip(self.total, self.count, strict=True)]
        x = [float(number * self.width) for number in self.index]
        return Curve(x, means, list(self.low), list(self.high), self.width)


STEP = 1.02  # a quantile is right within 1 %
_LOG_STEP = math.log(STEP)


@dataclass(slots=True)
class Quantiles:
    """Quantiles of positive numbers in bounded memory: counts in bins 2 % wide (as in DDSketch, VLDB 2019)."""

    bins: dict[int, int] = field(default_factory=dict)
    zeros: int = 0

    def add(self, value: float) -> None:
        if value > 1e-12:
            bin_ = int(math.log(value) / _LOG_STEP // 1)
            self.bins[bin_] = self.bins.get(bin_, 0) + 1
        else:
            self.zeros += 1

    def at(self, *shares: float) -> list[float]:
        """The values below which these shares of the numbers lie; 0.0 where there are none."""
        total = self.zeros + sum(self.bins.values())
        out = []
        ordered = sorted(self.bins.items())
        for share in shares:
            rank = share * max(0, total - 1)
            seen = self.zeros
            found = 0.0
            if rank >= seen:
                for bin_, count in ordered:
                    seen += count
                    if rank < seen:
                        found = math.exp((bin_ + 0.5) * _LOG_STEP)
                        break
            out.append(found)
        return out
