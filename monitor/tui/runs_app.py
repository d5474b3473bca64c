"""The screen of all runs, running and ended: open, compare, stop and replay them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click, Key, MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from monitor import settings
from monitor.keymap import COMPARE, HELP_ACTIONS, MARK, MOUSE, RUNS_ACTIONS, STOP_RUN_ACTIONS
from monitor.palettes import PALETTES, Palette
from monitor.runs.fleet import ALONE, COMMAND, GROUP_TAG, Group, regrouped
from monitor.runs.run_filter import HINT, matches
from monitor.tui.actions import bindings
from monitor.tui.drawing import runs_rows
from monitor.tui.drawing.characters import PlainCharacters
from monitor.tui.drawing.characters import ink as terminal_ink
from monitor.tui.drawing.rows import Row, column, fit, row_width, wrap
from monitor.tui.drawing.run_preview import preview
from monitor.tui.drawing.runs_rows import Line
from monitor.tui.drawing.themes import textual_theme
from monitor.tui.panels.base import strip
from monitor.tui.screens.compare_screen import CompareScreen, RunsCompared
from monitor.tui.screens.dialogs import MAX_BOX_WIDTH, Dialog, StopScreen
from monitor.tui.screens.page import Finder
from monitor.tui.terminal_output import LeanScreen
from monitor.tui.textual_private import add_filter, color_system, report_mouse

REFRESH_SECONDS = 2.0  # between two updates of the list
MAX_TAGS = 8  # that runs can be grouped by

Choice = tuple[str, Path]
"""What to do next, `open` or `replay`, and the run."""


class Runs(Protocol):
    """The source of the list."""

    reading: bool  # whether some reports have not been read yet

    def groups(self) -> list[Group]:
        """Return the current runs. It may take half a second, and is called from a thread."""


class GroupsRead(Message):
    """The runs were read. A newer message replaces an older one."""

    def __init__(self, groups: list[Group], reading: bool) -> None:
        super().__init__()
        self.groups, self.reading = groups, reading

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, GroupsRead)


class UnwatchedFound(Message):
    """Lines on the trainings that are in no run."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines


class RunsList(Finder, Widget):
    """The list of runs. Only rows that changed are redrawn."""

    can_focus = True

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.lines: list[Line] = []
        self.marked: set[Path] = set()
        self.cursor: Path | None = None
        self._place = 0  # the cursor's line; it stays where the run is gone
        self.unwatched: list[str] = []  # lines below the runs
        self._sort = ""  # the column; empty: in the order of the source
        self._falling = True
        self._source: Sequence[Group] = ()
        self._groups: Sequence[Group] = ()  # filtered and sorted
        self.search_text, self.typing = "", False
        self.by = ""  # what runs are grouped by; empty: as the source does
        self._reading = True
        self._has_groups = False
        self._strips: list[Strip] = []

    def set_groups(self, groups: Sequence[Group], reading: bool) -> None:
        """Show these runs, without the marks of runs that are gone."""
        self._source, self._reading, self._has_groups = groups, reading, True
        rows = [row for group in groups for row in group.rows if matches(row, self.search_text)]
        if self.by:
            shown = regrouped(rows, self.by)
        else:
            kept = {row.path for row in rows}
            parts = (replace(group, rows=tuple(row for row in group.rows if row.path in kept)) for group in groups)
            shown = [group for group in parts if group.rows]
        self._groups = runs_rows.ordered(shown, self._sort, self._falling)
        self.lines = runs_rows.lines(self._groups)
        there = {line.path for line in self.lines}
        self.marked &= {path for path in there if path is not None}
        self.draw()

    def selected_line(self) -> Line | None:
        """Return the line under the cursor; None in an empty list."""
        if not self.lines:
            return None
        places = [place for place, line in enumerate(self.lines) if line.path and line.path == self.cursor]
        if self.cursor is None and self._place == 0:  # the first run, not the head of its group
            self._place = next((place for place, line in enumerate(self.lines) if line.run is not None), 0)
        self._place = places[0] if places else min(self._place, len(self.lines) - 1)
        return self.lines[self._place]

    def move(self, rows: int) -> None:
        """Move the cursor, up if negative."""
        if self.selected_line() is not None:
            self._place = min(max(self._place + rows, 0), len(self.lines) - 1)
            self.cursor = self.lines[self._place].path
            self.draw()

    def sort(self, by: int, reverse: bool = False) -> None:
        """Sort by another column, `by` columns to the right of the current one, or reverse the order."""
        if not self._has_groups:
            return
        titles = self._titles()
        self._sort = titles[(titles.index(self._sort) + by) % len(titles)] if self._sort in titles else ""
        self._falling = not self._falling if reverse else self._sort not in runs_rows.RISING
        self.set_groups(self._source, self._reading)

    def group_by_next(self) -> None:
        """Group by the next of: names, command, each tag, nothing."""
        tags = sorted({key for group in self._source for row in group.rows for key in row.entry.tags})[:MAX_TAGS]
        ways = ["", COMMAND, *(tag for tag in tags if tag != GROUP_TAG), ALONE]
        self.by = ways[(ways.index(self.by) + 1) % len(ways)] if self.by in ways else ""
        self.filter_again()

    def filter_again(self) -> None:
        if self._has_groups:
            self.set_groups(self._source, self._reading)

    def on_key(self, event: Key) -> None:
        if self.search_key(event):
            self.filter_again()
            self.draw()

    def show_all(self) -> None:
        """Show all runs again."""
        self._drop_search()
        self.filter_again()
        self.draw()

    def _titles(self) -> list[str]:
        """Return the columns to sort by, after the order of the source."""
        return ["", *(title for title, _ in runs_rows.head(self._groups, self.size.width))]

    def draw(self) -> None:
        """Redraw the rows that changed."""
        width, height = self.size
        if not width or not height:
            return
        strips = [strip(row, width, self.palette) for row in self._rows(width, height)]
        old, self._strips = self._strips, strips
        if len(old) != len(strips):
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, strips, strict=True)):
            if before != after:
                self.refresh(Region(0, y, width, 1))

    def _rows(self, width: int, height: int) -> list[Row]:
        others = self._below(width, height)
        height -= len(others)
        if not self._has_groups:
            rows: list[Row] = [[(" looking for runs…", "muted")]]
        elif not self.lines and self.search_text:
            rows = [runs_rows.top((), False, width), [], [(" no run matches", "muted")]]
        elif not self.lines and not self._reading:
            rows = [runs_rows.top((), False, width), [], runs_rows.empty(width)]
        else:
            head = [span for _, span in runs_rows.head(self._groups, width, self._sort, self._falling)]
            rows = [runs_rows.top(self._groups, self._reading, width, self.by), [], head]
            here, placed = self.selected_line(), runs_rows.layout(self._groups, width)
            for place in self._visible(height):
                line = self.lines[place]
                rows.append(runs_rows.row(line, placed, line is here, self.marked))
            if here is not None and here.run is not None:
                rows += preview(here.run, width, height - 1 - len(rows))
        rows = rows[: max(1, height - 1)]
        rows += [[] for _ in range(height - 1 - len(rows))]
        rows += others
        height += len(others)
        return [*rows, [span for _, key in self._footer(width) for span in key]][:height]

    def _below(self, width: int, height: int) -> list[Row]:
        """Return the lines below the runs: trainings without a run, and the filter."""
        line = self.line(width)
        if self.typing and not self.search_text:
            line = [*line, (f" {HINT}", "muted")]
        return [*runs_rows.below(self.unwatched, width, height), *([line] if line else [])]

    def _visible(self, height: int) -> range:
        """Return the places of the lines that there is room for, in `height` rows."""
        room = max(1, height - 4)
        first = min(max(0, self._place - room // 2), max(0, len(self.lines) - room))
        return range(first, min(first + room, len(self.lines)))

    def _footer(self, width: int) -> list[tuple[str, Row]]:
        chosen = self.selected_line()
        living = chosen is not None and chosen.run is not None and chosen.run.living
        return runs_rows.footer(width, len(self.marked), living)

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips) and self._strips[y].cell_length == self.size.width:
            return self._strips[y]
        return strip([], self.size.width, self.palette)

    def on_resize(self) -> None:
        self._strips = []
        self.draw()

    def hit(self, x: int, y: int) -> str:
        """Return the app's action of a click on a cell; empty: none."""
        width, height = self.size
        if y == height - 1:
            return _at(x, [(action, row_width(row)) for action, row in self._footer(width)])
        if self.lines and y == 2:
            title = _at(x, [(title, row_width([span])) for title, span in runs_rows.head(self._groups, width)])
            titles = self._titles()
            by = titles.index(title) - titles.index(self._sort if self._sort in titles else "")
            return f"sort({by})" if title and by else "reverse" if title else ""
        places = self._visible(height - len(self._below(width, height)))
        if not 0 <= y - 3 < len(places):
            return ""
        by = places[y - 3] - self._place
        return f"move({by})" if by else "choose('open')"

    async def on_click(self, event: Click) -> None:
        if event.button == 1 and (action := self.hit(event.x, event.y)):
            await self.app.run_action(action, self.app)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.move(2)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.move(-2)


def _at(x: int, parts: Sequence[tuple[str, int]]) -> str:
    """Return the name of the part of a row at a cell, from names and widths; empty beside them."""
    ends = accumulate(width for _, width in parts)
    return next((name for (name, _), end in zip(parts, ends, strict=True) if x < end), "")


class StopQuestion(Dialog[bool]):
    """Asks for confirmation before a training is stopped."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(STOP_RUN_ACTIONS)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.heading = f"Stop {fit(name, 40)}?"  # type: ignore[misc]

    def parts(self) -> list[Widget]:
        options = zip(("no", "stop"), STOP_RUN_ACTIONS, strict=True)
        return [OptionList(*(Option(Content(f"{action.shown}  {action.help}"), id=name) for name, action in options))]

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id == "stop")


class RunsHelp(Dialog[None]):
    """Every key of the list, and what a filter takes."""

    heading = "Help"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = bindings(HELP_ACTIONS)

    def parts(self) -> list[Widget]:
        width = min(MAX_BOX_WIDTH, self.app.size.width) - 8
        keys = [f" {column(action.shown, 9)}{action.help}" for action in RUNS_ACTIONS]
        about = f"A filter keeps the runs with all of what is typed: {HINT}."
        indents = (0, 0, *[10] * len(keys))
        pairs = zip((about, "", *keys), indents, strict=True)
        lines = [row for line, indent in pairs for row in wrap([(line, "")], width, indent, 99)]
        return [VerticalScroll(Static(Content("\n".join("".join(part for part, _ in row) for row in lines))))]


class RunsApp(App[Choice], inherit_bindings=False):
    """The app with the list of runs. Its result is what to open next; None when the user quits."""

    CSS_PATH = Path(__file__).with_name("trainmon.tcss")
    CSS = "RunsList { width: 100%; height: 100%; }"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = bindings(RUNS_ACTIONS)

    def __init__(
        self,
        runs: Runs,
        compared: Callable[[list[Path]], RunsCompared],
        stop: Callable[[Path, Callable[[str], None]], object],
        cursor: Path | None = None,
        notice: str = "",
        unwatched: Callable[[], list[str]] = list,
    ) -> None:
        """
        Args:
            unwatched: returns lines on the trainings that are in no run; it may take a second, and is called once.
            compared: compares runs with the first of them; it may take seconds.
            stop: stops the training of a run and reports each action as a line; it may block.
            cursor: the run under the cursor at first.
            said: a notification to show at first; empty for none.
        """
        environment = dict(os.environ)  # before the app removes NO_COLOR from it
        super().__init__()
        self.title = "trainmon"
        if terminal_ink(environment, color_system(self.console), settings.ascii_only()).ascii:
            add_filter(self, PlainCharacters())
        self._runs, self._compared, self._stop_run = runs, compared, stop
        self._ended = threading.Event()
        self._palette = PALETTES[0]
        for palette in PALETTES:
            self.register_theme(textual_theme(palette))
        self.theme = self._palette.name
        self.list = RunsList(self._palette)
        self.list.cursor = cursor
        self._notice = notice
        self._unwatched = unwatched
        self._mouse_given = False  # the terminal has it, to select text

    def get_default_screen(self) -> LeanScreen:
        return LeanScreen("_default")

    def compose(self) -> ComposeResult:
        yield self.list

    def on_mount(self) -> None:
        self.animation_level = "none"
        if self._notice:
            self.notify(fit(self._notice, 300), markup=False)
        threading.Thread(target=self._read, name="runs", daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()

    def _read(self) -> None:
        """Read the runs until the app closes, in a thread; without a pause while reports are still to be read."""
        is_first = True
        while not self._ended.is_set():
            groups = self._runs.groups()
            if not self._ended.is_set():
                self.post_message(GroupsRead(groups, self._runs.reading))
            if is_first and not self._ended.is_set():
                is_first = False
                self.post_message(UnwatchedFound(self._unwatched()))
            self._ended.wait(0.05 if self._runs.reading else REFRESH_SECONDS)

    def on_unwatched_found(self, message: UnwatchedFound) -> None:
        self.list.unwatched = message.lines
        self.list.draw()

    def on_groups_read(self, message: GroupsRead) -> None:
        self.list.set_groups(message.groups, message.reading)

    def action_find(self) -> None:
        self.list.do_find()
        self.list.draw()

    def action_group(self) -> None:
        self.list.group_by_next()

    def action_restore(self) -> None:
        self.list.show_all()

    def action_help(self) -> None:
        self.push_screen(RunsHelp())

    def action_leave(self) -> None:
        self.exit(None)

    def action_move(self, rows: int) -> None:
        self.list.move(rows)

    def action_sort(self, by: int) -> None:
        self.list.sort(by)

    def action_reverse(self) -> None:
        self.list.sort(0, reverse=True)

    def action_mouse(self) -> None:
        self._mouse_given = not self._mouse_given
        report_mouse(self, not self._mouse_given)
        text = f"The mouse selects text; {MOUSE.shown} takes it back" if self._mouse_given else "The mouse works here"
        self.notify(text, markup=False)

    def action_choose(self, what: str) -> None:
        line = self.list.selected_line()
        if line is not None and line.path is not None:
            self.exit((what, line.path))

    def action_mark(self) -> None:
        line = self.list.selected_line()
        if line is None:
            return
        paths = {line.path} if line.path is not None else {run.path for run in line.group.rows}
        self.list.marked = self.list.marked - paths if paths <= self.list.marked else self.list.marked | paths
        self.list.move(1)

    def action_compare(self) -> None:
        chosen = [line.path for line in self.list.lines if line.path is not None and line.path in self.list.marked]
        if len(chosen) < 2:
            self.notify(f"Mark two runs or more with {MARK.shown}; {COMPARE.shown} compares them", markup=False)
            return
        # The oldest first: the others' baseline.
        self.push_screen(CompareScreen(partial(self._compared, chosen[::-1]), self._palette))

    def action_stop(self) -> None:
        line = self.list.selected_line()
        if line is None or line.run is None:
            return
        if not line.run.living:
            self.notify(f"{fit(line.run.entry.name, 40)} is not running", markup=False)
            return
        path = line.run.path
        self.push_screen(StopQuestion(line.run.entry.name), lambda answer: self._answered(path, answer))

    def _answered(self, path: Path, answer: bool | None) -> None:
        if answer:
            self.push_screen(StopScreen(lambda say: (self._stop_run(path, say), None)[1], "leave"))

    def action_theme(self) -> None:
        self._palette = PALETTES[(PALETTES.index(self._palette) + 1) % len(PALETTES)]
        self.theme = self._palette.name
        self.list.palette = self._palette
        self.list.draw()
