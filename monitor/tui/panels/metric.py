"""Reward, loss and any other metric: its curve, and its last, lowest and highest value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from monitor import units as fmt
from monitor.model.metric_order import place
from monitor.model.report import Curve, MetricRow, View
from monitor.runs.fleet import GOOD_HIGH
from monitor.tui.actions import key_of
from monitor.tui.columns import ends
from monitor.tui.cursor import at
from monitor.tui.panels.base import Look
from monitor.tui.panels.curve import CurvePanel
from monitor.tui.rows import Row, fit, row_width, separated

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


def pointed_value(curve: Curve, cursor: int) -> Row:
    """`step 97 0.4457`: what the curve says where the time cursor is."""
    moment = at(curve, cursor)
    if moment is None:
        return [(f"step {cursor:,} ", "accent"), (fmt.UNKNOWN, "text")]
    value = moment.value if math.isfinite(moment.value) else "not finite"
    return [(f"{moment.name} ", "accent"), *_value(value)]


def higher_is_better(name: str) -> bool:
    return not set(GOOD_HIGH).isdisjoint(re.findall(r"[a-z0-9]+", name.lower()))


def summary(row: MetricRow, width: int, pointed: Row | None = None, name: str = "") -> Row:
    """The figures of a metric; what the time cursor points at comes before them.

    Args:
        name: of the metric, which may say that its highest value matters more than its lowest.
    """
    last: Row = [("last ", "muted"), *_value(row.last)]
    if row.count == 1:
        return separated([pointed or last, [("the only value", "muted")]], width, ("  ", "text"))
    parts: list[Row] = [pointed or last]
    if row.nonfinite:
        parts.append([(f"{fmt.plural(row.nonfinite, 'value', 'values')} not finite", "bad bold")])
    bounds = [[(f"{label} ", "muted"), *_value(value)] for label, value in (("min", row.min), ("max", row.max))]
    all_fit = sum(map(row_width, [*parts, *bounds])) + 2 * len(parts) + 2 <= width
    if not all_fit and (higher_is_better(name) or _value(row.min) == _value(row.last)):
        bounds.reverse()  # the one that tells more has its place first
    return separated([*parts, *bounds], width, ("  ", "text"))


class Metric(CurvePanel):
    number = 3

    def data(self, view: View, look: Look) -> object:
        name = chosen(view, look)
        beside = len(view.metrics), ends(view.step_seconds), look.cursor
        return name and (name, view.metrics.get(name), view.report.metrics.get(name)), beside

    def heading(self, view: View, look: Look) -> str:
        name = chosen(view, look)
        return "Metrics" if name is None else fit(name, 60)

    def aside(self, view: View, look: Look) -> Row:
        others = len(view.metrics) - 1
        name = chosen(view, look)
        if name is not None and self.size.height < LOW:
            if look.cursor is not None:
                return pointed_value(view.metrics.get(name, Curve()), look.cursor)
            return [("last ", "muted"), *_value(view.report.metrics.get(name, MetricRow()).last)]
        return [(key_of("next_metric", look.actions), "accent"), (f" {others} more", "muted")] if others > 0 else []

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        name = chosen(view, look)
        if name is None:
            return [[("  no metric has been logged yet", "muted")]]
        row, curve = view.report.metrics.get(name, MetricRow()), view.metrics.get(name, Curve())
        pointed = None if look.cursor is None else pointed_value(curve, look.cursor)
        head: list[Row] = [] if height + 1 < LOW else [[(" ", "text"), *summary(row, width - 1, pointed, name)]]
        return [*head, *self.curve(name, curve, width, height - len(head), look, view.step_seconds)]
