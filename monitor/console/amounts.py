"""Tokens and samples per step and per second, from printed totals and rates.

A rate averaged since the start hides the present one. It is recognized by the total and the elapsed time beside it,
or by its name, and replaced by the rate since the previous line.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.console.reading import Reading
from trainhooks.protocol.limits import Number

# Largest difference of a printed total from rate times elapsed time, as a share: all are rounded, and totals printed in
# thousands or millions (`0.03M`) by up to a fifth.
MAX_ROUNDING, MAX_SCALED_ROUNDING = 0.06, 0.2
MIN_UNSCALED = 1e6  # smaller totals may have been printed in thousands or millions


@dataclass(frozen=True, slots=True)
class Amount:
    """The tokens or samples of the steps between two lines."""

    per_step: int | None = None
    whole: float | None = None
    rate: float | None = None

    def share(self, steps: int, step_seconds: float | None) -> int | None:
        """Return the amount of one of these steps; None where unknown."""
        if self.per_step is not None:
            return self.per_step
        if self.whole is not None:
            return round(self.whole / steps)
        return round(self.rate * step_seconds) if self.rate is not None and step_seconds else None


@dataclass(slots=True)
class AmountTracker:
    """Follow the amount of tokens or of samples."""

    what: str
    _total: float | None = None
    _averaged: tuple[float, float] | None = None  # total and elapsed time at the previous line, for an average

    def add_reading(self, reading: Reading, moved: bool) -> Amount:
        """Return the amount since the previous reading; add its metrics to the reading."""
        tokens = self.what == "tokens"
        per_step = reading.tokens if tokens else reading.samples
        total = reading.tokens_total if tokens else reading.samples_total
        rate = reading.tokens_rate if tokens else reading.samples_rate
        whole = None
        if total is not None:
            reading.metrics.setdefault(self.what, _number(total))
        if rate is not None and self._is_average(reading, total, rate):
            return self._of_average(reading, rate, per_step)
        if rate is not None:
            reading.metrics.setdefault(f"{self.what}_per_second", rate)
        if total is not None and (moved or self._total is None):
            whole = total - self._total if self._total is not None and total >= self._total else None
            self._total = total
        return Amount(per_step, whole, rate)

    def _is_average(self, reading: Reading, total: float | None, rate: float) -> bool:
        if reading.average:
            return reading.family != "epoch" or reading.seconds is None  # else it is over the epoch
        if total is None or reading.elapsed is None or total <= 0:
            return False
        rounding = MAX_SCALED_ROUNDING if total < MIN_UNSCALED else MAX_ROUNDING
        return self._averaged is not None or abs(rate * reading.elapsed - total) <= rounding * total

    def _of_average(self, reading: Reading, rate: float, per_step: int | None) -> Amount:
        elapsed = reading.elapsed
        if elapsed is None:
            reading.metrics.setdefault(f"{self.what}_per_second_average", rate)
            return Amount(per_step)
        total = rate * elapsed
        before, since = self._averaged or (0.0, 0.0)
        if elapsed <= since:
            return Amount(per_step)
        self._averaged = (total, elapsed)
        if total < before:
            reading.impossible.append(f"{self.what}_per_second {(total - before) / (elapsed - since):.4g}")
            return Amount(per_step)
        reading.metrics[f"{self.what}_per_second"] = (total - before) / (elapsed - since)
        return Amount(per_step, total - before)


def _number(value: float) -> Number:
    return int(value) if value == int(value) else value
