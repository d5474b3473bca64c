"""Tokens a second over the run."""

from __future__ import annotations

import math

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.metric import LOW
from monitor.tui.panels.plot import line_chart
from monitor.tui.rows import Row, separated


class Tokens(Panel):
    number = 4

    def data(self, view: View, look: Look) -> object:
        return view.tokens_per_second, view.report.throughput.tokens_per_second

    def heading(self, view: View, look: Look) -> str:
        return "Tokens a second"

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        curve = view.tokens_per_second
        if not curve.x:
            return [[("  no tokens have been counted", "muted")]]
        last = next((value for value in reversed(curve.mean) if math.isfinite(value)), None)
        whole = view.report.throughput.tokens_per_second
        parts: list[Row] = [
            [("last ", "muted"), (fmt.rate(last, "tok/s"), "text")],
            [("whole run ", "muted"), (fmt.rate(whole, "tok/s"), "text")],
        ]
        row: Row = [(" ", "text"), *separated(parts, width - 1, ("  ", "text"))]
        head = [] if height + 1 < LOW else [row]
        return [*head, *line_chart(curve, width, height - len(head))]
