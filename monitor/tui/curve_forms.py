"""A curve in another form: logarithms, smoothed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monitor.model.report import Curve


def logarithms(curve: Curve) -> Curve:
    """Decimal logarithms; what is not above zero has none, and becomes a gap."""

    def each(values: Sequence[float]) -> list[float]:
        return [math.log10(value) if value > 0 and math.isfinite(value) else math.nan for value in values]

    means = each(curve.mean)
    lows = [low if math.isfinite(low) else mean for low, mean in zip(each(curve.low), means, strict=True)]
    return Curve(curve.x, means, lows, each(curve.high), curve.width, curve.end)


def smoothed(curve: Curve, weight: float) -> Curve:
    """Each mean drawn towards those before it: `weight` of what went before stays (as TensorBoard does, unbiased)."""
    out, kept, share = [], 0.0, 0.0
    for mean in curve.mean:
        if math.isfinite(mean):
            kept = weight * kept + (1 - weight) * mean
            share = weight * share + (1 - weight)
        out.append(kept / share if math.isfinite(mean) else math.nan)
    return Curve(curve.x, out, out, out, curve.width, curve.end)
