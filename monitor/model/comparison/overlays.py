"""Curves of two runs that are shown one over the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model.steps.series import Curve
from monitor.model.view import View

MAX_METRICS = 3  # beside the step time; more are shown on the screens of the runs


@dataclass(frozen=True, slots=True)
class Overlay:
    name: str
    before: Curve
    after: Curve


def overlays(before: View, after: View) -> tuple[Overlay, ...]:
    """Return the step times, and the metrics that both runs log: what they learn by first."""
    leading = [signal.name for signal in (*before.signals, *after.signals)]
    both = before.metrics.keys() & after.metrics.keys()
    shared = [name for name in dict.fromkeys([*leading, *before.metrics]) if name in both]
    pairs = [("seconds a step", before.step_seconds, after.step_seconds)]
    pairs += [(name, before.metrics[name], after.metrics[name]) for name in shared[:MAX_METRICS]]
    return tuple(Overlay(name, one, other) for name, one, other in pairs if one.x and other.x)
