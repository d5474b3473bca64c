"""The curves of a view, read off the state. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from monitor.columns import Floats
from monitor.model.metric_order import ordered
from monitor.model.report import Curve
from monitor.model.series import Column
from monitor.model.state import Figures, RunState


def curves(state: RunState) -> dict[str, Any]:
    """The keyword arguments of a View that hold curves."""
    main = state.main
    return {
        "step_seconds": _curve(main.step_seconds),
        "phase_seconds": {name: _curve(stats.seconds) for name, stats in main.phases.items()},
        "metrics": {name: _curve(column) for name, column in ordered(state.metrics).items()},
        "tokens_per_second": _tokens_per_second(main),
    }


def stretches(values: Sequence[float], most: int) -> Iterator[list[float]]:
    """The values in at most so many parts, nearly alike in size; of each those that are known."""
    parts = min(most, len(values))
    ends = [part * len(values) // parts for part in range(parts + 1)] if parts else []
    return ([value for value in values[a:b] if math.isfinite(value)] for a, b in pairwise(ends))


def _curve(column: Column) -> Curve:
    return column.digested().series.curve()


def _tokens_per_second(main: Figures) -> Curve:
    """Tokens by the time from step to step, pauses between steps included."""
    tokens, seconds = _curve(main.tokens), _curve(main.pace_seconds)
    rates = Floats(a / b if b > 0 else math.nan for a, b in zip(tokens.mean, seconds.mean, strict=False))
    return Curve(tokens.x, rates, rates, rates, tokens.width, tokens.end)
