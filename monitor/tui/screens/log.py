"""What the training printed: followed, searched, with progress bars drawn as bars."""

from __future__ import annotations

import re
from typing import ClassVar

from rich.cells import chop_cells
from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.base import Look
from monitor.tui.panels.console import nothing_printed
from monitor.tui.rows import Row, meter, printable, text_width, wrap
from monitor.tui.screens.page import Body, Finder, PageScreen

# tqdm's and rich's likes: `label:  46%|████▌     | 46/100 [00:04<00:05, 9.8it/s]`
_BAR = re.compile(r"^(?P<label>.{0,80}?)(?P<percent>\d{1,3})%\|(?P<drawn>[^|]{0,400})\|(?P<rest>.*)$")
_SHORTEST, _LONGEST = 8, 40
INDENT = 2  # cells before the rows in which a line goes on
MOST_ROWS = 12  # of one line: some programs print whole tensors


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


def folded(line: str, wanted: str, width: int) -> list[Row]:
    """The line in as many rows as it needs, the later ones indented; what was looked for stands out."""
    text = printable(line)
    pieces = _pieces(text, max(INDENT + 2, width))
    begin, end = _found(text, wanted)
    tone = "muted" if begin == end else "text"
    rows: list[Row] = []
    at = 0
    for piece in pieces[:MOST_ROWS]:
        first, last = (min(max(place - at, 0), len(piece)) for place in (begin, end))
        parts = ((piece[:first], tone), (piece[first:last], "background/accent bold"), (piece[last:], tone))
        margin: Row = [(" " * INDENT, tone)] if rows else []
        rows.append([*margin, *((part, each) for part, each in parts if part)])
        at += len(piece)
    if len(pieces) > MOST_ROWS:
        rows.append([("  … the rest is in the run's console.log", "muted")])
    return rows


def _pieces(text: str, width: int) -> list[str]:
    """`text` in pieces that fit into the rows, broken behind a space where one is near the end."""
    pieces: list[str] = []
    while text_width(text) > width and len(pieces) <= MOST_ROWS:
        piece = chop_cells(text[:width], width)[0]
        space = piece.rfind(" ") + 1
        pieces.append(piece[:space] if 2 * space > len(piece) else piece)
        text = text[len(pieces[-1]) :]
        width -= INDENT if len(pieces) == 1 else 0
    return [*pieces, text]


def _found(text: str, wanted: str) -> tuple[int, int]:
    """Where it lies in `text`; from 0 to 0 where it does not."""
    at = text.lower().find(wanted.lower()) if wanted else -1
    return (0, 0) if at < 0 or len(text.lower()) != len(text) else (at, at + len(wanted))


class Log(Finder, Body):
    screen_name = "log"
    title = "Console"
    from_end = True
    of_entries = ("find", "next(-1)", "next(1)")
    about = (
        "The newest lines that the training printed, its progress bars drawn to the width of the screen. It follows the"
        " end until you go up; End follows again. A line too long for the screen goes on in the next row.",
        "/ finds: lines with a match stand out, n goes to the one before, N to the next. The whole output lies in the"
        " run's directory, in console.log.",
    )

    def data(self, view: View, look: Look) -> object:
        empty = look.replay, view.report.outcome.state
        return view.console, view.console_lines, self.wanted, self.typing, self._away, empty

    def __init__(self) -> None:
        super().__init__()
        self._heights: list[int] = []  # rows of each line that is kept, as last drawn
        self._arrived = 0, 0  # lines, and their rows

    def aside(self, view: View, look: Look) -> Row:
        total = f"{view.console_lines:,} lines"
        kept = f", the newest {len(view.console):,} here" if view.console_lines > len(view.console) else ""
        new = max(0, view.console_lines - self._arrived[0])  # since it was last drawn
        below = max(1, len(self._heights) - 1 - self._lowest()) + new  # one: the rest of a long one
        away = f"{fmt.plural(below, 'line', 'lines')} below  "
        follows: Row = [(away, "warning")] if self._away else [("following  ", "good")]
        matches: Row = []
        if self.wanted:
            count = sum(self.matches(line) for line in view.console)
            matches = [(f"{count:,} with a match  ", "accent")]
        return [*matches, *follows, (total + kept, "muted")] if view.console_lines else []

    def _lowest(self) -> int:
        """The line at the lower edge."""
        at, below = len(self._heights) - 1, self._away
        while at > 0 and below >= self._heights[at]:
            below -= self._heights[at]
            at -= 1
        return at

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        line = self.line(width)
        foot = [line] if line else []
        rows = super().body(view, look, width, height - len(foot))
        return [*rows, *[[] for _ in range(height - len(foot) - len(rows))], *foot]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        self.empty = not view.console
        if self.empty:
            return wrap([("  ", "text"), (nothing_printed(view, look), "muted")], width - 2)
        drawn = [self._drawn_line(line, width - 2) for line in view.console]
        self._heights = [len(rows) for rows in drawn]
        return [row for rows in drawn for row in rows]

    def _drawn_line(self, line: str, width: int) -> list[Row]:
        bar = [] if self.wanted else progress_bar(line, width)
        return [bar] if bar else folded(line, self.wanted, width)

    def position(self, view: View, rows: list[Row]) -> int:
        lines, arrived = self._arrived
        new = max(0, view.console_lines - lines)
        self._arrived = view.console_lines, arrived + sum(self._heights[-new:] if new else ())
        return self._arrived[1]

    def do_move(self, rows: int) -> None:
        self._away = max(0, self._away - rows)

    def do_next(self, by: int) -> None:
        """Bring the next line with a match to the lower edge."""
        if self._view is None or not self.wanted:
            return
        lines = self._view.console
        at = self._lowest() + by
        while 0 <= at < min(len(lines), len(self._heights)):
            if self.matches(lines[at]):
                self._away = sum(self._heights[at + 1 :])
                return
            at += by


class LogScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("log")]

    def __init__(self) -> None:
        super().__init__(Log())
