"""What a training learns by: its rewards or returns first, else its losses, each with its trend. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.report import MetricRow
from monitor.model.steps.growth import slope
from monitor.model.steps.series import Curve
from monitor.units import number
from trainhooks.protocol.limits import clean
from trainhooks.protocol.vocabulary import is_loss, is_reward

MAX_SIGNALS = 3  # metrics
NO_TREND = "no trend"


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    value: float | str | None  # the last part of its curve where a trend is known, else the last value
    trend: str = ""  # rising | falling | no trend; empty: too few values to say
    begin: float | None = None  # the first part of its curve, where it rises or falls
    nonfinite: int = 0

    def __str__(self) -> str:
        """Return `loss 0.412, falling from 2.31`, cleaned."""
        words = f"{clean(self.name, 40)} {number(self.value)}"
        if self.nonfinite:
            return f"{words}, {self.nonfinite:,} not finite"
        if not self.trend:
            return words
        return f"{words}, {self.trend}" + (f" from {number(self.begin)}" if self.begin is not None else "")


def signals(rows: Mapping[str, MetricRow], curves: Mapping[str, Curve]) -> tuple[Signal, ...]:
    """Return what the training learns by, at most `MAX_SIGNALS`."""
    names = [name for name in rows if is_reward(name)] or [name for name in rows if is_loss(name)]
    return tuple(_signal(name, rows[name], curves.get(name)) for name in names[:MAX_SIGNALS])


def _signal(name: str, row: MetricRow, curve: Curve | None) -> Signal:
    known = [] if curve is None else [(x, y) for x, y in zip(curve.x, curve.mean, strict=True) if math.isfinite(y)]
    trend = slope(known)
    if trend is None:
        return Signal(name, row.last, nonfinite=row.nonfinite)
    value = known[-1][1]
    if row.nonfinite or trend.low <= 0.0 <= trend.high:
        return Signal(name, value, "" if row.nonfinite else NO_TREND, nonfinite=row.nonfinite)
    return Signal(name, value, "rising" if trend.low > 0.0 else "falling", known[0][1])
