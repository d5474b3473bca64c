"""The curves of a view, read off the state. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from monitor.model.metric_order import ordered
from monitor.model.report import Curve
from monitor.model.series import Column
from monitor.model.state import Figures, RunState

_READINGS = ("Optional[float]", "Optional[int]")  # the types of what may be drawn; identity and text have others
_NO_CURVES = {"reasons", "cores", "xid"}


def curves(state: RunState) -> dict[str, Any]:
    """The keyword arguments of a View that hold curves."""
    main = state.main
    return {
        "step_seconds": _curve(main.step_seconds),
        "phase_seconds": {name: _curve(stats.seconds) for name, stats in main.phases.items()},
        "metrics": {name: _curve(column) for name, column in ordered(state.metrics).items()},
        "tokens_per_second": _tokens_per_second(main),
        "host": _histories(state.host),
        "gpus": {uuid: _histories(readings) for uuid, readings in state.gpus.items()},
    }


def _curve(column: Column) -> Curve:
    return column.digested().series.curve()


def _tokens_per_second(main: Figures) -> Curve:
    """Tokens by the time from step to step, pauses between steps included."""
    tokens, seconds = _curve(main.tokens), _curve(main.pace_seconds)
    rates = [a / b if b > 0 else math.nan for a, b in zip(tokens.mean, seconds.mean, strict=False)]
    return Curve(tokens.x, rates, list(rates), list(rates), tokens.width, tokens.end)


def _histories(readings: Sequence[Any]) -> dict[str, list[float]]:
    """The newest readings as one list a figure; nan where a reading lacks it."""
    if not readings:
        return {}
    names = [f.name for f in fields(readings[0]) if f.type in _READINGS and f.name not in _NO_CURVES]
    table = {name: [getattr(each, name) for each in readings] for name in names}
    return {
        name: [math.nan if value is None else float(value) for value in column]
        for name, column in table.items()
        if any(value is not None for value in column)
    }
