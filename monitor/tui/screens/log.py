"""What the training printed: followed, searched, with progress bars drawn as bars."""

from __future__ import annotations

import re
from typing import ClassVar

from textual.binding import BindingType

from monitor.model.report import View
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.base import Look
from monitor.tui.panels.console import nothing_printed
from monitor.tui.rows import Row, fit, meter, printable, text_width, wrap
from monitor.tui.screens.page import Body, Finder, PageScreen

# tqdm's and rich's likes: `label:  46%|████▌     | 46/100 [00:04<00:05, 9.8it/s]`
_BAR = re.compile(r"^(?P<label>.{0,80}?)(?P<percent>\d{1,3})%\|(?P<drawn>[^|]{0,400})\|(?P<rest>.*)$")
_SHORTEST, _LONGEST = 8, 40


def progress_bar(line: str, width: int) -> Row:
    """A line of a progress bar with a bar of our own, so that its figures stay in sight; [] for any other line."""
    found = _BAR.match(line)
    if found is None or int(found["percent"]) > 100:
        return []
    label, rest = printable(found["label"]), printable(found["rest"])
    percent = f"{int(found['percent']):3d} % "
    room = min(_LONGEST, width - text_width(label) - text_width(percent) - text_width(rest) - 1)
    if room < _SHORTEST:
        return []
    bar = meter(int(found["percent"]) / 100, room)
    return [(label, "muted"), (percent, "text bold"), *bar, (rest, "muted")]


def marked(line: str, wanted: str, width: int) -> Row:
    """The line, with what was looked for standing out."""
    text = fit(line, width)
    at = text.lower().find(wanted.lower()) if wanted else -1
    if at < 0 or len(text.lower()) != len(text):
        return [(text, "muted")]
    end = at + len(wanted)
    return [(text[:at], "text"), (text[at:end], "background/accent bold"), (text[end:], "text")]


class Log(Finder, Body):
    screen_name = "log"
    title = "Console"
    from_end = True
    about = (
        "The newest lines that the training printed, its progress bars drawn to the width of the screen. It follows the"
        " end until you go up; End follows again.",
        "/ finds: lines with a match stand out, n goes to the one before, N to the next. The whole output lies in the"
        " run's directory, in console.log.",
    )

    def data(self, view: View, look: Look) -> object:
        empty = look.replay, view.report.outcome.state
        return view.console, view.console_lines, self.wanted, self.typing, self._away, empty

    def aside(self, view: View, look: Look) -> Row:
        total = f"{view.console_lines:,} lines"
        kept = f", the newest {len(view.console):,} here" if view.console_lines > len(view.console) else ""
        follows: Row = [("following  ", "good")] if not self._away else [(f"{self._away:,} lines below  ", "warning")]
        matches: Row = []
        if self.wanted:
            count = sum(self.matches(line) for line in view.console)
            matches = [(f"{count:,} with a match  ", "accent")]
        return [*matches, *follows, (total + kept, "muted")] if view.console_lines else []

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        line = self.line(width)
        foot = [line] if line else []
        rows = super().body(view, look, width, height - len(foot))
        return [*rows, *[[] for _ in range(height - len(foot) - len(rows))], *foot]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        if not view.console:
            return wrap([("  ", "text"), (nothing_printed(view, look), "muted")], width - 2)
        return [
            (not self.wanted and progress_bar(line, width - 2)) or marked(line, self.wanted, width - 2)
            for line in view.console
        ]

    def position(self, view: View, rows: list[Row]) -> int:
        return view.console_lines

    def do_move(self, rows: int) -> None:
        self._away = max(0, self._away - rows)

    def do_next(self, by: int) -> None:
        """Bring the next line with a match to the lower edge."""
        if self._view is None or not self.wanted:
            return
        lines = self._view.console
        at = len(lines) - 1 - self._away + by
        while 0 <= at < len(lines):
            if self.matches(lines[at]):
                self._away = len(lines) - 1 - at
                return
            at += by


class LogScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("log")]

    def __init__(self) -> None:
        super().__init__(Log())
