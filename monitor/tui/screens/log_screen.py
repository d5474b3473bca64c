"""The console screen: the training's output, followed or searched, with progress bars redrawn."""

from __future__ import annotations

import re

from rich.cells import chop_cells

from monitor import units
from monitor.model.view import View
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
        "The newest console lines, progress bars redrawn to the width of the screen. The view follows the"
        " end until you go up; End follows again. A line too long for the screen goes on in the next row.",
        "/ finds: lines with a match stand out, n goes to the one before, N to the next. The whole output lies in the"
        " run's directory, in console.log.",
    )

    def data(self, view: View, options: ViewOptions) -> object:
        empty = options.replay, view.report.outcome.state
        return view.console, view.console_lines, self.search_text, self.typing, self._away, empty

    def __init__(self) -> None:
        super().__init__()
        self._heights: list[int] = []  # rows of each kept line, as last drawn
        self._arrived = 0, 0  # lines, and their rows

    def aside(self, view: View, options: ViewOptions) -> Row:
        total = f"{view.console_lines:,} lines"
        kept = f", newest {len(view.console):,} shown" if view.console_lines > len(view.console) else ""
        new = max(0, view.console_lines - self._arrived[0])  # since the last draw
        below = max(1, len(self._heights) - 1 - self._lowest()) + new  # at least one: the rest of a long line
        away = f"{units.plural(below, 'line', 'lines')} below  "
        follows: Row = [(away, "warning")] if self._away else [("following  ", "good")]
        matches: Row = []
        if self.search_text:
            count = sum(self.matches(line) for line in view.console)
            matches = [(f"{count:,} matching  ", "accent")]
        return [*matches, *follows, (total + kept, "muted")] if view.console_lines else []

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
        self.empty = not view.console
        if self.empty:
            return wrap([("  ", "text"), (nothing_printed(view, options), "muted")], width - 2)
        drawn = [self._drawn_line(line, width - 2) for line in view.console]
        self._heights = [len(rows) for rows in drawn]
        return [row for rows in drawn for row in rows]

    def _drawn_line(self, line: str, width: int) -> list[Row]:
        bar = [] if self.search_text else progress_bar(line, width)
        return [bar] if bar else folded(line, self.search_text, width)

    def position(self, view: View, rows: list[Row]) -> int:
        lines, arrived = self._arrived
        new = max(0, view.console_lines - lines)
        self._arrived = view.console_lines, arrived + sum(self._heights[-new:] if new else ())
        return self._arrived[1]

    def do_move(self, rows: int) -> None:
        self._away = max(0, self._away - rows)

    def do_next(self, by: int) -> None:
        """Bring the next line with a match to the lower edge."""
        if self._view is None or not self.search_text:
            return
        lines = self._view.console
        at = self._lowest() + by
        while 0 <= at < min(len(lines), len(self._heights)):
            if self.matches(lines[at]):
                self._away = sum(self._heights[at + 1 :])
                return
            at += by
