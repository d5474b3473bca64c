"""Tokens and samples: what a step had of them, and how fast they went, from totals and rates as printed. Pure.

A rate that is an average since the begin hides what is going on now. It is told by the total and the elapsed time
beside it, or by its name; then the rate of the stretch since the line before takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.console.reading import Reading
from trainhooks.events import Number

SAME = 0.06  # a printed total, rate and time agree within this: each is rounded, `0.03M` to a fifth of itself at worst
ROUGH = 0.2


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a stretch had: of a step, of the whole stretch, or a second."""

    each: int | None = None
    whole: float | None = None
    rate: float | None = None

    def share(self, steps: int, seconds: float) -> int | None:
        """What one of the stretch's steps had; None where it cannot be told."""
        if self.each is not None:
            return self.each
        if self.whole is not None:
            return round(self.whole / steps)
        return round(self.rate * seconds / steps) if self.rate is not None and seconds > 0 else None


@dataclass(slots=True)
class Flow:
    """Follows one thing that is counted: tokens, or samples."""

    what: str
    _total: float | None = None
    _averaged: tuple[float, float] | None = None  # total and elapsed at the line before, of an average

    def take(self, reading: Reading, moved: bool) -> Amount:
        """What this reading says of the stretch since the one before; its metrics are added to the reading."""
        tokens = self.what == "tokens"
        each = reading.tokens if tokens else reading.samples
        total = reading.tokens_total if tokens else reading.samples_total
        rate = reading.tokens_rate if tokens else reading.samples_rate
        whole = None
        if total is not None:
            reading.metrics.setdefault(self.what, _number(total))
        if rate is not None and self._is_average(reading, total, rate):
            return self._of_average(reading, rate, each)
        if rate is not None:
            reading.metrics.setdefault(f"{self.what}_per_second", rate)
        if total is not None and (moved or self._total is None):
            whole = total - self._total if self._total is not None and total >= self._total else None
            self._total = total
        return Amount(each, whole, rate)

    def _is_average(self, reading: Reading, total: float | None, rate: float) -> bool:
        if reading.average:
            return True
        if total is None or reading.elapsed is None or total <= 0:
            return False
        rounding = ROUGH if total < 1e6 else SAME  # it was printed in thousands or millions
        return self._averaged is not None or abs(rate * reading.elapsed - total) <= rounding * total

    def _of_average(self, reading: Reading, rate: float, each: int | None) -> Amount:
        elapsed = reading.elapsed
        if elapsed is None:
            reading.metrics.setdefault(f"{self.what}_per_second_average", rate)
            return Amount(each)
        total = rate * elapsed
        before, since = self._averaged or (0.0, 0.0)
        if elapsed <= since:
            return Amount(each)
        self._averaged = (total, elapsed)
        if total < before:
            reading.impossible.append(f"{self.what}_per_second {(total - before) / (elapsed - since):.4g}")
            return Amount(each)
        reading.metrics[f"{self.what}_per_second"] = (total - before) / (elapsed - since)
        return Amount(each, total - before)


def _number(value: float) -> Number:
    return int(value) if value == int(value) else value
