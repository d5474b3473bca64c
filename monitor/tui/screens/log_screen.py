"""The console screen: the training's output, followed, searched or filtered, beside the steps that printed it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from rich.cells import chop_cells

from monitor import units
from monitor.model.view import View
from monitor.sources.console_history import ConsoleHistory, Window
from monitor.sources.console_marks import ConsoleMarks
from monitor.tui.drawing.rows import Row, meter, printable, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.console_panel import nothing_printed
from monitor.tui.screens.page import Body, Finder, screen

# Bars like those of tqdm and rich: `label:  46%|████▌     | 46/100 [00:04<00:05, 9.8it/s]`
_BAR = re.compile(r"^(?P<label>.{0,80}?)(?P<percent>\d{1,3})%\|(?P<drawn>[^|]{0,400})\|(?P<rest>.*)$")
_SHORTEST, _LONGEST = 8, 40
MARGIN = 2  # cells before each row: the line in question, and stderr
HERE, ERRORS = ("▸", "accent bold"), ("│", "warning")
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


def folded(line: str, wanted: str, width: int, tone: str = "muted") -> list[Row]:
    """Return the line in at most `MOST_ROWS` rows, all but the first indented, with the search text highlighted."""
    text = printable(line)
    pieces = _pieces(text, max(INDENT + 2, width))
    begin, end = _found(text, wanted)
    tone = tone if begin == end else "text"
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
    entry_actions = ("find", "only", "next(-1)", "next(1)", "step")
    about = (
        "All that the training printed, progress bars redrawn to the width of the screen. The view follows the"
        " end until you go up; End follows again. A line too long for the screen goes on in the next row. │ marks what"
        " was written to stderr, where it is known: not where both streams wrote within a tenth of a second.",
        "/ finds: lines with a match stand out, n goes to the one before, N to the next, in the whole output. & leaves"
        " only the lines with a match, of the whole output. It lies in the run's directory, in console.log.",
        "▸ is the line at the lower edge. Enter opens the step that was open when it was printed; about means that"
        " several came as close. l on an opened step, or with the time cursor, shows what was printed then.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._heights: list[int] = []  # rows of each line, as last drawn
        self._arrived = -1, 0  # begin of the newest line, and the rows of all
        self._window: Window | None = None  # lines of before; None: the newest are shown
        self._is_filtered = False
        self._older: Window | None = None  # while filtered, what matches in the output before the newest lines
        self._missed = ""  # where the last search found nothing
        self._marks: ConsoleMarks | None = None
        self._wanted_step: int | None = None  # whose output is to be shown first

    def begin_at(self, step: int | None) -> None:
        self._wanted_step = step

    def show(self, view: View, options: ViewOptions) -> None:
        if self._marks is None and view.console_file is not None:
            self._marks = ConsoleMarks(view.console_file)
        if self._marks is not None:
            self._marks.refresh()
        if self._wanted_step is not None:
            self._view, step, self._wanted_step = view, self._wanted_step, None
            self._go_to_step(view, step)
        super().show(view, options)

    def data(self, view: View, options: ViewOptions) -> object:
        empty = options.replay, view.report.outcome.state
        newest = (view.console, view.console_lines) if self._window is None else None
        search = self.search_text, self.typing, self._is_filtered
        return newest, self._window, self._missed, search, self._away, empty

    def _lines(self, view: View) -> Window:
        """Return the lines that are scrolled through."""
        if self._window is not None:
            return self._window
        lines, starts = view.console, view.console_starts
        if len(starts) != len(lines):  # not of a file
            starts = tuple(range(view.console_lines - len(lines), view.console_lines))
        newest = Window(lines, (*starts, starts[-1] + 1 if starts else 0), starts[0] if starts else 0)
        if not self._filtering:
            return newest
        if self._older is None:
            return _matching(newest, self.search_text)
        history, older = self._history(), self._older
        if history is not None and newest.begin > older.starts[-1]:  # more came at once than is kept
            self._older = older = older.joined(history.matching_after(self.search_text, older.starts[-1]))
        return older.joined(_matching(newest, self.search_text, older.starts[-1]))

    @property
    def _filtering(self) -> bool:
        return self._is_filtered and bool(self.search_text)

    def aside(self, view: View, options: ViewOptions) -> Row:
        matches: Row = [(f"{self._missed}  ", "warning")] if self._missed else []
        shown = self._lines(view)
        if self.search_text and not self._missed:
            count = sum(self.matches(line) for line in shown.lines)
            matches = [(f"{count:,} matching  ", "accent")]
        if self._away or self._window is not None:
            if not self._heights:  # drawn below this title
                self.everything(view, options, self.size.width)
            matches += [(f"{words}  ", "text")] if (words := self._when(view)) else []
        if self._window is not None:
            size = max(1, ConsoleHistory(view.console_file).size()) if view.console_file else 1
            return [*matches, (f"at {units.share(min(1.0, shown.starts[-1] / size))} of the output", "muted")]
        total = units.plural(view.console_lines, "line", "lines")
        new = sum(start > self._arrived[0] for start in shown.starts[:-1])  # since the last draw
        below = max(1, len(self._heights) - 1 - self._lowest()[0]) + new  # at least one: the rest of a long line
        away = f"{units.plural(below, 'line', 'lines')} below  "
        follows: Row = [(away, "warning")] if self._away else [("following  ", "good")]
        return [*matches, *follows, (total, "muted")] if view.console_lines else []

    def _lowest(self) -> tuple[int, int]:
        """Return the index of the line at the lower edge, and its rows below the edge."""
        at, below = len(self._heights) - 1, self._away
        while at > 0 and below >= self._heights[at]:
            below -= self._heights[at]
            at -= 1
        return at, below

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        line = self.line(width)
        foot = [line] if line else []
        rows = super().body(view, options, width, height - len(foot))
        at, below = self._lowest()
        if rows and not self.empty and 0 <= at < len(self._heights):
            first = max(0, len(rows) - max(1, self._heights[at] - below))
            rows[first] = [HERE, *rows[first][1:]]
        return [*rows, *[[] for _ in range(height - len(foot) - len(rows))], *foot]

    def line(self, width: int) -> Row:
        row = super().line(width)
        return [*row, ("   only matches", "accent")] if self._filtering and row else row

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        shown = self._lines(view)
        self.empty = not view.console
        self._heights = []
        if self.empty:
            return wrap([("  ", "text"), (nothing_printed(view, options), "muted")], width - 2)
        if not shown.lines:
            looked = "" if shown.begin <= 0 else ", as far as was looked"
            return [[(f"  no line matches{looked}", "muted")]]
        marks = self._marks if len(view.console_starts) == len(view.console) else None
        drawn = []
        for text, start in zip(shown.lines, shown.starts, strict=False):
            is_error = marks is not None and marks.is_error(start)
            rows = self._drawn_line(text, width - 2, is_error)
            drawn.append([[(" ", "text"), ERRORS if is_error else (" ", "text"), *row] for row in rows])
        self._heights = [len(rows) for rows in drawn]
        return [row for rows in drawn for row in rows]

    def _drawn_line(self, line: str, width: int, is_error: bool = False) -> list[Row]:
        width -= MARGIN
        bar = [] if self.search_text else progress_bar(line, width)
        return [bar] if bar else folded(line, self.search_text, width, "warning" if is_error else "muted")

    def _rows_of(self, lines: Sequence[str]) -> int:
        return sum(len(self._drawn_line(line, self.size.width - 2)) for line in lines)

    def position(self, view: View, rows: list[Row]) -> int:
        if self._window is not None:
            return 0
        newest, arrived = self._arrived
        starts = self._lines(view).starts[:-1]
        new = sum(start > newest for start in starts)
        self._arrived = max(newest, *starts, -1), arrived + sum(self._heights[-new:] if new else ())
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
            self._show_window(self._after(history, 0), drawn)
        elif wanted > drawn - self.size.height + 1 and rows < 0:
            self._go_back(history)
        elif wanted < 0 and self._window is not None:
            self._go_on(history, self._window)
        self._away = max(0, self._away - rows)

    def _history(self) -> ConsoleHistory | None:
        path = None if self._view is None else self._view.console_file
        return None if path is None else ConsoleHistory(path)

    def _before(self, history: ConsoleHistory, end: int) -> Window:
        return history.matching_before(self.search_text, end) if self._filtering else history.before(end)

    def _after(self, history: ConsoleHistory, begin: int) -> Window:
        return history.matching_after(self.search_text, begin) if self._filtering else history.after(begin)

    def _go_back(self, history: ConsoleHistory) -> None:
        """Move the window up by half, where there are older lines; extend a filtered one."""
        if self._filtering and self._view is not None:
            shown = self._lines(self._view)
            older = self._before(history, shown.begin)
            if older.lines or older.begin < shown.begin:
                self._show_window(older.joined(shown), self._away)
            return
        window = self._window or history.before(history.size())
        half = len(window.lines) // 2
        older = history.before(window.starts[half])
        if older.lines and older.starts[0] < window.starts[0]:
            self._show_window(older, self._away - self._rows_of(window.lines[half:]))

    def _go_on(self, history: ConsoleHistory, window: Window) -> None:
        """Move it down by half; at the end of the output, follow that."""
        if self._filtering:
            newer = self._after(history, window.starts[-1])
            is_end = newer.starts[-1] >= history.before(history.size()).starts[-1]
            self._older = window.joined(newer) if is_end else self._older
            self._show_window(None if is_end else window.joined(newer), self._away + self._rows_of(newer.lines))
            return
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
        shown = self._lines(self._view)
        at = self._lowest()[0] + by
        while 0 <= at < min(len(shown.lines), len(self._heights)):
            if self.matches(shown.lines[at]):
                self._away = sum(self._heights[at + 1 :])
                return
            at += by
        history, forward = self._history(), by > 0
        if history is None or (forward and self._window is None):
            return
        begin = (self._window or (shown if self._filtering else history.before(history.size()))).starts
        found = history.find(self.search_text, begin[-1 if forward else 0], forward)
        if found is None:
            self._missed = f"no match {'below' if forward else 'above'}, as far as was looked"
            return
        self._show_line(history, found)

    def _show_line(self, history: ConsoleHistory, start: int) -> None:
        """Bring a line to the lower edge."""
        end = history.after(start).starts
        self._show_window(self._before(history, end[1] if len(end) > 1 else history.size()), 0)

    def do_only(self) -> None:
        """Leave only the lines with a match, or show all again, with the same line at the lower edge."""
        if self._view is None or self.typing:
            return
        if not self.search_text:
            self._is_filtered = self.typing = True
            return
        shown, (at, _) = self._lines(self._view), self._lowest()
        start = shown.starts[at] if self._heights and (self._away or self._window) else None
        self._is_filtered = not self._is_filtered
        self._filter_again()
        history = self._history()
        if start is not None and history is not None and len(self._view.console_starts) == len(self._view.console):
            self._show_line(history, start)

    def _filter_again(self) -> None:
        """Read what matches of the whole output, as far as is looked at once."""
        self._missed, self._older, self._arrived = "", None, (-1, 0)
        self._show_window(None, 0)
        history, view = self._history(), self._view
        if self._filtering and history is not None and view is not None and view.console_starts:
            self._older = history.matching_before(self.search_text, history.size())

    def _keep_search(self) -> None:
        super()._keep_search()
        if self._is_filtered:
            self._filter_again()

    def _drop_search(self) -> None:
        super()._drop_search()
        if self._is_filtered:
            self._is_filtered = False
            self._filter_again()

    # Lines and steps

    def _step_of(self, view: View) -> tuple[int | None, str]:
        """Return the step of the line at the lower edge, and how it is told; (None, "") where its time is unknown."""
        shown, clock = self._lines(view), view.details.clock
        at = self._lowest()[0]
        if self._marks is None or not clock.begins or not self._heights or len(shown.starts) <= at + 1:
            return None, ""
        times = self._marks.times_of(shown.starts[at]) if view.console_starts else None
        if times is None:
            return None, ""
        first, last = (clock.step_at(moment) for moment in times)
        if last is None:
            return None, "before the first step"
        if times[0] > clock.ends[-1]:
            return last, f"after step {last:,}"
        if first == last and all(map(clock.is_exact, times)):
            return last, f"step {last:,}"
        middle = clock.step_at(sum(times) / 2) or last
        return middle, f"about step {middle:,}"

    def _when(self, view: View) -> str:
        """Return when the line at the lower edge was printed, and its step; "" where unknown."""
        words = self._step_of(view)[1]
        shown, offset = self._lines(view), view.details.wall_offset
        at = self._lowest()[0]
        times = self._marks.times_of(shown.starts[at]) if words and self._marks is not None else None
        told = "" if times is None or offset is None else time.strftime("%H:%M:%S", time.localtime(times[1] + offset))
        return ", ".join(filter(None, (words, told)))

    def do_step(self) -> None:
        if self._view is None:
            return
        step, words = self._step_of(self._view)
        if step is None:
            self._missed = words or "when this line was printed is not known"
            return
        self.call_later(self.app.run_action, f"app.open('steps', ({step}, 1))")

    def _go_to_step(self, view: View, step: int) -> None:
        """Bring the first line that was printed from a step's begin on to the lower edge."""
        begin, history = view.details.clock.begin_of(step), self._history()
        place = self._marks.place_of(begin) if self._marks is not None and begin is not None else None
        if place is None or history is None:
            self._missed = f"what was printed at step {step:,} is not known: the output has no times"
            return
        self._show_line(history, place)


def _matching(window: Window, text: str, begin: int = 0) -> Window:
    """Return the lines with a text that begin at a byte or after it."""
    pairs = zip(window.lines, window.starts, strict=False)
    kept = [(line, start) for line, start in pairs if start >= begin and text.lower() in line.lower()]
    return Window(tuple(line for line, _ in kept), (*(start for _, start in kept), window.starts[-1]), window.begin)
