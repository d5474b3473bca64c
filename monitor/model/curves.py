"""The curves of a view, read off the state. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from monitor.columns import Floats
from monitor.model.device_use import tells_phases, uses_device
from monitor.model.metric_order import ordered
from monitor.model.pace import Mark
from monitor.model.report import Curve
from monitor.model.series import Column
from monitor.model.state import Figures, RunState

# Of a run that is told by its pace alone. A host that waits for the device in one step of many waits some times in each
# of these; between two waits its steps tell how fast it queues.
STRETCHES = 16


def curves(state: RunState) -> dict[str, Any]:
    """The keyword arguments of a View that hold curves."""
    main = state.main
    return {
        "step_seconds": step_seconds(state),
        "phase_seconds": _phase_seconds(state),
        "host_step_seconds": _curve(main.step_seconds),
        "host_phase_seconds": _host_phase_seconds(main),
        "metrics": {name: _curve(column) for name, column in ordered(state.metrics).items()},
        "tokens_per_second": _tokens_by_pace(main) if uses_device(state) else _tokens_per_second(main),
    }


def step_seconds(state: RunState) -> Curve:
    """Seconds a step. On a GPU by the device's clock, or by the marks of the run's pace: the host runs ahead, and waits
    for the device in one step of many.
    """
    main = state.main
    if not uses_device(state):
        return _curve(main.step_seconds)
    return _curve(main.device.paces) if main.device.is_known else _pace(main)


def _phase_seconds(state: RunState) -> dict[str, Curve]:
    lane = state.main.device
    if tells_phases(lane):
        return {name: _curve(column) for name, column in lane.phases.items()}
    return _host_phase_seconds(state.main)


def _host_phase_seconds(main: Figures) -> dict[str, Curve]:
    return {name: _curve(stats.seconds) for name, stats in main.phases.items()}


def _pace(main: Figures) -> Curve:
    """Seconds a step over stretches of the whole run."""
    return _over_stretches(main, lambda a, b: (b[0] - a[0]) / (b[1] - a[1]))


def _tokens_by_pace(main: Figures) -> Curve:
    """Tokens a second over the same: a step of a host that runs ahead is no measure of them."""
    tokens, paces = _curve(main.tokens), _curve(main.device.paces)
    if main.device.is_known and tokens.width == paces.width:
        seconds = dict(zip(paces.x, paces.mean, strict=True))
        told = zip(tokens.x, tokens.mean, strict=True)
        rows = [(x, each / seconds[x]) for x, each in told if seconds.get(x, 0.0) > 0]
        rates = Floats(rate for _, rate in rows)
        return Curve(Floats(x for x, _ in rows), rates, rates, rates, tokens.width, tokens.end)
    if not main.pace.tokens:
        return Curve()
    return _over_stretches(main, lambda a, b: (b[2] - a[2]) / (b[0] - a[0]))


def _over_stretches(main: Figures, figure: Callable[[Mark, Mark], float]) -> Curve:
    marks = main.pace.whole[:: max(1, -(-len(main.pace.whole) // STRETCHES))]
    pairs = [(a, b) for a, b in pairwise(marks) if b[1] > a[1] and b[0] > a[0]]
    x = Floats(a[1] + 1 for a, _ in pairs)
    means = Floats(figure(a, b) for a, b in pairs)
    width = max((b[1] - a[1] for a, b in pairs), default=1)
    return Curve(x, means, means, means, width, float(main.last_index) if pairs else None)


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
