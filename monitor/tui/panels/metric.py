"""Reward, loss and any other metric: its curve, and its last, lowest and highest value."""

from __future__ import annotations

from collections.abc import Iterable

from monitor import units as fmt
from monitor.model.metric_order import place
from monitor.model.report import Curve, MetricRow, View
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.plot import line_chart
from monitor.tui.rows import Row, fit, separated

LOW = 7  # rows of a panel below which the chart needs the row of the numbers


def default_metric(names: Iterable[str]) -> str | None:
    """The metric people look for first: a reward, else a loss, else the first there is; the hooks' own last."""
    return min(names, key=place, default=None)


def chosen(view: View, look: Look) -> str | None:
    """The metric to show: the chosen one while it exists."""
    names = list(dict.fromkeys([*view.metrics, *view.report.metrics]))
    return look.metric if look.metric in names else default_metric(names)


def _value(value: float | str | None) -> Row:
    return [(fit(fmt.number(value), 14), "bad bold" if isinstance(value, str) else "text")]


def summary(row: MetricRow, width: int) -> Row:
    parts: list[Row] = [[("last ", "muted"), *_value(row.last)]]
    if row.nonfinite:
        parts.append([(f"× {row.nonfinite:,} not finite", "bad bold")])
    parts += [[(f"{label} ", "muted"), *_value(value)] for label, value in (("min", row.min), ("max", row.max))]
    return separated(parts, width, ("  ", "text"))


class Metric(Panel):
    number = 3

    def data(self, view: View, look: Look) -> object:
        name = chosen(view, look)
        names = len(view.metrics)
        return name and (name, view.metrics.get(name), view.report.metrics.get(name)), names

    def heading(self, view: View, look: Look) -> str:
        name = chosen(view, look)
        return "Metrics" if name is None else fit(name, 60)

    def aside(self, view: View, look: Look) -> Row:
        others = len(view.metrics) - 1
        name = chosen(view, look)
        if name is not None and self.size.height < LOW:
            return [("last ", "muted"), *_value(view.report.metrics.get(name, MetricRow()).last)]
        return [("m", "accent"), (f" {others} more", "muted")] if others > 0 else []

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        name = chosen(view, look)
        if name is None:
            return [[("  no metric has been logged yet", "muted")]]
        row = view.report.metrics.get(name, MetricRow())
        head: list[Row] = [] if height + 1 < LOW else [[(" ", "text"), *summary(row, width - 1)]]
        return [*head, *line_chart(view.metrics.get(name, Curve()), width, height - len(head))]
