"""The console panel: the last lines that the training printed."""

from __future__ import annotations

from monitor import units
from monitor.model.view import View
from monitor.tui.drawing.rows import Row, fit, wrap
from monitor.tui.panels.base import ScrollPanel, ViewOptions, on_board


def why_no_console(view: View, options: ViewOptions) -> str:
    """Return why console lines never appear here, and where they are; empty if they do appear."""
    if options.replay:
        return "not available in a replay: console output is in the run's console.log"
    if view.report.run.imported:
        return "not available for an imported log: see the original file"
    return ""


def nothing_printed(view: View, options: ViewOptions) -> str:
    """Return why there is no console line."""
    if why := why_no_console(view, options):
        return why
    return "no output yet" if view.report.outcome.state == "running" else "no output, or output not kept"


@on_board("console", 6, "Console", wide=(2, 2), middle=(3, 1), narrow=5)
class Console(ScrollPanel):
    from_end = True

    def data(self, view: View, options: ViewOptions) -> object:
        return view.console, view.console_lines, options.replay, view.report.outcome.state

    def heading(self, view: View, options: ViewOptions) -> str:
        return "Console"

    def has_place(self, view: View, options: ViewOptions) -> bool:
        return bool(view.console) or not why_no_console(view, options)

    def aside(self, view: View, options: ViewOptions) -> Row:
        return [(units.plural(view.console_lines, "line", "lines"), "muted")] if view.console_lines else []

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        if not view.console:
            return wrap([("  ", "text"), (nothing_printed(view, options), "muted")], width - 2)
        return [[(fit(line, width - 2), "muted")] for line in view.console]

    def position(self, view: View, rows: list[Row]) -> int:
        return view.console_lines
