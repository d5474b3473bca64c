"""The last lines the training printed."""

from __future__ import annotations

from monitor.model.report import View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.rows import Row, fit


class Console(ScrollPanel):
    number = 6
    from_end = True

    def data(self, view: View, look: Look) -> object:
        return view.console, view.console_lines

    def heading(self, view: View, look: Look) -> str:
        return "Console"

    def aside(self, view: View, look: Look) -> Row:
        return [(f"{view.console_lines:,} lines", "muted")] if view.console_lines else []

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        if not view.console:
            return [[("  nothing printed yet", "muted")]]
        return [[(fit(line, width - 2), "muted")] for line in view.console]

    def position(self, view: View, rows: list[Row]) -> int:
        return view.console_lines
