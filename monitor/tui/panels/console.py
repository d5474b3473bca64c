"""The last lines the training printed."""

from __future__ import annotations

from monitor.model.report import View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.rows import Row, fit, wrap


def elsewhere(view: View, look: Look) -> str:
    """Where the lines are that never come here; empty where they do."""
    if look.replay:
        return "a replay: a journal does not hold what was printed; it is in the run's console.log"
    if view.report.run.imported:
        return "a log that was imported: its lines are in the file it came from"
    return ""


def nothing_printed(view: View, look: Look) -> str:
    """Why there is no line."""
    if told := elsewhere(view, look):
        return told
    return "nothing printed yet" if view.report.outcome.state == "running" else "nothing was printed, or it is not kept"


class Console(ScrollPanel):
    number = 6
    from_end = True

    def data(self, view: View, look: Look) -> object:
        return view.console, view.console_lines, look.replay, view.report.outcome.state

    def heading(self, view: View, look: Look) -> str:
        return "Console"

    def has_place(self, view: View, look: Look) -> bool:
        return bool(view.console) or not elsewhere(view, look)

    def aside(self, view: View, look: Look) -> Row:
        return [(f"{view.console_lines:,} lines", "muted")] if view.console_lines else []

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        if not view.console:
            return wrap([("  ", "text"), (nothing_printed(view, look), "muted")], width - 2)
        return [[(fit(line, width - 2), "muted")] for line in view.console]

    def position(self, view: View, rows: list[Row]) -> int:
        return view.console_lines
