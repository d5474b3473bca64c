"""The console screen: the training's output, followed or searched, with progress bars redrawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import chop_cells

from monitor import units
from monitor.model.view import View
from monitor.sources.console_history import ConsoleHistory, Window
from monitor.tui.drawing.rows import Row, meter, printable, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.console_panel import nothing_printed
from monitor.tui.screens.page import Body, Finder, screen

# Bars like those of tqdm and rich: `label:  46%|████▌     | 46/100 [00:04<00:05, 9.8it/s]`
_BAR = re.compile(r"^(?P<label>.{0,80}?)(?P<percent>\d{1,3})%\|(?P<drawn>[^|]{0,400})\|(?P<rest>.*)$")
_SHORTEST, _LONGEST = 8, 40
INDENT = 2  # cells before the continuation rows of a line
MAX_LINE_ROWS = 12  # rows of one line: some programs print whole tensors


def progress_bar(line: str, width: int) -> Row:
    """Return a progress bar redrawn to `width`, so that its figures stay visible; [] for any other line."""
    found = _BAR.match(line)
    if found is None or int(found["percent"]) > 100:
        return []
    label, rest = printable(found["label"]), printable(found["rest"])
    percent = f"{int(found['percent']):3d}% "
    room = min(_LONGEST, width - text_width(label) - text_width(percent) - text_width(rest) - 1)
    if room < _SHORTEST:
        return []
    bar = meter(int(found["percent"]) / 100, room)
    return [(label, "muted"), (percent, "text bold"), *bar, (rest, "muted")]


def folded(line: str, wanted: str, width: int) -> list[Row]:
    """Return the line in at most `MOST_ROWS` rows, all but the first indented, with the search text highlighted."""
    text = printable(line)
    pieces = _pieces(text, max(INDENT + 2, width))
    begin, end = _found(text, wanted)
    tone = "muted" if begin == end else "text"
    rows: list[Row] = []
    at = 0
    for piece in pieces[:MAX_LINE_ROWS]:
        first, last = (min(max(place - at, 0), len(piece)) for place in (begin, end))
        parts = ((piece[:first], tone), (piece[first:last], "background/accent bold"), (piece[last:], tone))
        margin: Row = [(" " * INDENT, tone)] if rows else []
        rows.append([*margin, *((part, part_tone) for part, part_tone in parts if part)])
        at += len(piece)
    if len(pieces) > MAX_LINE_ROWS:
        rows.append([("  … (rest in console.log)", "muted")])
    return rows


def _pieces(text: str, width: int) -> list[str]:
    """Return `text` in pieces that fit into the rows, broken after a space if one is near the end."""
    pieces: list[str] = []
    while text_width(text) > width and len(pieces) <= MAX_LINE_ROWS:
        piece = chop_cells(text[:width], width)[0]
        space = piece.rfind(" ") + 1
        pieces.append(piece[:space] if 2 * space > len(piece) else piece)
        text = text[len(pieces[-1]) :]
        width -= INDENT if len(pieces) == 1 else 0
    return [*pieces, text]


def _found(text: str, wanted: str) -> tuple[int, int]:
    """Return the begin and end of the search text in `text`; (0, 0) if it is not there."""
    at = text.lower().find(wanted.lower()) if wanted else -1
    return (0, 0) if at < 0 or len(text.lower()) != len(text) else (at, at + len(wanted))


@screen
class Log(Finder, Body):
    screen_name = "log"
    title = "Console"
    from_end = True
    entry_actions = ("find", "next(-1)", "next(1)")
    about = (
        "All that the training printed, progress bars redrawn to the width of the screen. The view follows the"
        " end until you go up; End follows again. A line too long for the screen goes on in the next row.",
        "/ finds: lines with a match stand out, n goes to the one before, N to the next, in the whole output. It lies"
        " in the run's directory, in console.log.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._heights: list[int] = []  # rows of each line, as last drawn
        self._arrived = 0, 0  # lines, and their rows
        self._window: Window | None = None  # lines of before; None: the newest are shown
        self._missed = ""  # where the last search found nothing

    def data(self, view: View, options: ViewOptions) -> object:
        empty = options.replay, view.report.outcome.state
        newest = (view.console, view.console_lines) if self._window is None else None
        return newest, self._window, self._missed, self.search_text, self.typing, self._away, empty

    def _lines(self, view: View) -> tuple[str, ...]:
        return view.console if self._window is None else self._window.lines

    def aside(self, view: View, options: ViewOptions) -> Row:
        matches: Row = [(f"{self._missed}  ", "warning")] if self._missed else []
        if self.search_text and not self._missed:
            count = sum(self.matches(line) for line in self._lines(view))
            matches = [(f"{count:,} matching  ", "accent")]
        if self._window is not None:
            size = max(1, ConsoleHistory(view.console_file).size()) if view.console_file else 1
            return [*matches, (f"at {units.share(min(1.0, self._window.starts[-1] / size))} of the output", "muted")]
        total = f"{view.console_lines:,} lines"
        new = max(0, view.console_lines - self._arrived[0])  # since the last draw
        below = max(1, len(self._heights) - 1 - self._lowest()) + new  # at least one: the rest of a long line
        away = f"{units.plural(below, 'line', 'lines')} below  "
        follows: Row = [(away, "warning")] if self._away else [("following  ", "good")]
        return [*matches, *follows, (total, "muted")] if view.console_lines else []

    def _lowest(self) -> int:
        """Return the index of the line at the lower edge."""
        at, below = len(self._heights) - 1, self._away
        while at > 0 and below >= self._heights[at]:
            below -= self._heights[at]
            at -= 1
        return at

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        line = self.line(width)
        foot = [line] if line else []
        rows = super().body(view, options, width, height - len(foot))
        return [*rows, *[[] for _ in range(height - len(foot) - len(rows))], *foot]

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        lines = self._lines(view)
        self.empty = not lines
        if self.empty:
            return wrap([("  ", "text"), (nothing_printed(view, options), "muted")], width - 2)
        drawn = [self._drawn_line(line, width - 2) for line in lines]
        self._heights = [len(rows) for rows in drawn]
        return [row for rows in drawn for row in rows]

    def _drawn_line(self, line: str, width: int) -> list[Row]:
        bar = [] if self.search_text else progress_bar(line, width)
        return [bar] if bar else folded(line, self.search_text, width)

    def _rows_of(self, lines: Sequence[str]) -> int:
        return sum(len(self._drawn_line(line, self.size.width - 2)) for line in lines)

    def position(self, view: View, rows: list[Row]) -> int:
        if self._window is not None:
            return 0
        lines, arrived = self._arrived
        new = max(0, view.console_lines - lines)
        self._arrived = view.console_lines, arrived + sum(self._heights[-new:] if new else ())
        return self._arrived[1]

    def _show_window(self, window: Window | None, away: int) -> None:
        self._window, self._away, self._count = window, max(0, away), None

    def do_move(self, rows: int) -> None:
        self._missed = ""
        drawn, wanted = sum(self._heights), self._away - rows
        history = self._history()
        if rows > drawn or history is None:  # to the end
            self._show_window(None, wanted)
            return
        if -rows > drawn:
            self._show_window(history.after(0), drawn)
        elif wanted > drawn - self.size.height + 1 and rows < 0:
            self._go_back(history)
        elif wanted < 0 and self._window is not None:
            self._go_on(history, self._window)
        self._away = max(0, self._away - rows)

    def _history(self) -> ConsoleHistory | None:
        path = None if self._view is None else self._view.console_file
        return None if path is None else ConsoleHistory(path)

    def _go_back(self, history: ConsoleHistory) -> None:
        """Move the window up by half, where there are older lines."""
        window = self._window or history.before(history.size())
        half = len(window.lines) // 2
        older = history.before(window.starts[half])
        if older.lines and older.starts[0] < window.starts[0]:
            self._show_window(older, self._away - self._rows_of(window.lines[half:]))

    def _go_on(self, history: ConsoleHistory, window: Window) -> None:
        """Move it down by half; at the end of the output, follow that."""
        half = len(window.lines) // 2
        newer = history.after(window.starts[half])
        added = self._rows_of(newer.lines[len(window.lines) - half :])
        is_end = history.before(history.size()).starts[-1] <= newer.starts[-1]
        self._show_window(None if is_end else newer, self._away + added)

    def do_next(self, by: int) -> None:
        """Bring the next line with a match to the lower edge."""
        if self._view is None or not self.search_text:
            return
        self._missed = ""
        lines = self._lines(self._view)
        at = self._lowest() + by
        while 0 <= at < min(len(lines), len(self._heights)):
            if self.matches(lines[at]):
                self._away = sum(self._heights[at + 1 :])
                return
            at += by
        history, forward = self._history(), by > 0
        if history is None or (forward and self._window is None):
            return
        window = self._window or history.before(history.size())
        found = history.find(self.search_text, window.starts[-1 if forward else 0], forward)
        if found is None:
            self._missed = f"no match {'below' if forward else 'above'}, as far as was looked"
            return
        self._show_window(history.before(history.after(found).starts[1]), 0)
