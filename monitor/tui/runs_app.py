"""The screen of all runs: living and ended ones, opened, compared, stopped and replayed from here."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from monitor.runs.fleet import Group
from monitor.settings import config
from monitor.tui import runs_rows
from monitor.tui.economy import BoardScreen
from monitor.tui.ink import PlainCharacters
from monitor.tui.ink import ink as terminal_ink
from monitor.tui.panels.base import strip
from monitor.tui.rows import Row, fit, wrap
from monitor.tui.runs_preview import preview
from monitor.tui.runs_rows import Line
from monitor.tui.screens.dialog import WIDEST, Dialog
from monitor.tui.screens.quit import StopScreen
from monitor.tui.themes import PALETTES, Palette, textual_theme

LOOK_SECONDS = 2.0  # between two looks at the runs

Choice = tuple[str, Path]
"""What to do next: `open` or `replay`, and which run."""


class Runs(Protocol):
    """Where the list comes from. `look` may take half a second, and is called from a thread."""

    reading: bool

    def look(self) -> list[Group]:
        """The runs as they stand now."""


class Looked(Message):
    def __init__(self, groups: list[Group], reading: bool) -> None:
        super().__init__()
        self.groups, self.reading = groups, reading

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Looked)


class RunsList(Widget):
    """The list. It draws anew only the rows that changed."""

    can_focus = True

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.lines: list[Line] = []
        self.marked: set[Path] = set()
        self.cursor: Path | None = None
        self._place = 0  # of the cursor, where its run is gone
        self._groups: Sequence[Group] = ()
        self._reading = True
        self._looked = False
        self._strips: list[Strip] = []

    def take(self, groups: Sequence[Group], reading: bool) -> None:
        self._groups, self._reading, self._looked = groups, reading, True
        self.lines = runs_rows.lines(groups)
        there = {line.path for line in self.lines}
        self.marked &= {path for path in there if path is not None}
        self.draw()

    def at(self) -> Line | None:
        """The line under the cursor."""
        if not self.lines:
            return None
        places = [place for place, line in enumerate(self.lines) if line.path and line.path == self.cursor]
        if self.cursor is None and self._place == 0:  # the first run, not the head of its group
            self._place = next((place for place, line in enumerate(self.lines) if line.run is not None), 0)
        self._place = places[0] if places else min(self._place, len(self.lines) - 1)
        return self.lines[self._place]

    def move(self, rows: int) -> None:
        if self.at() is not None:
            self._place = min(max(self._place + rows, 0), len(self.lines) - 1)
            self.cursor = self.lines[self._place].path
            self.draw()

    def draw(self) -> None:
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
        if not self._looked:
            rows: list[Row] = [[(" looking for runs…", "muted")]]
        elif not self.lines and not self._reading:
            rows = [runs_rows.top((), False, width), [], runs_rows.empty(width)]
        else:
            rows = [runs_rows.top(self._groups, self._reading, width), [], runs_rows.head(self._groups, width)]
            here, placed = self.at(), runs_rows.layout(self._groups, width)
            room = max(1, height - 4)
            first = min(max(0, self._place - room // 2), max(0, len(self.lines) - room))
            for line in self.lines[first : first + room]:
                rows.append(runs_rows.row(line, placed, line is here, self.marked))
            if here is not None and here.run is not None:
                rows += preview(here.run, width, height - 1 - len(rows))
        chosen = self.at()
        living = chosen is not None and chosen.run is not None and chosen.run.living
        rows = rows[: max(1, height - 1)]
        rows += [[] for _ in range(height - 1 - len(rows))]
        return [*rows, runs_rows.footer(width, len(self.marked), living)][:height]

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips) and self._strips[y].cell_length == self.size.width:
            return self._strips[y]
        return strip([], self.size.width, self.palette)

    def on_resize(self) -> None:
        self._strips = []
        self.draw()

    def on_click(self, event: Click) -> None:
        height = self.size.height
        first = min(max(0, self._place - max(1, height - 4) // 2), max(0, len(self.lines) - max(1, height - 4)))
        if 3 <= event.y < height - 1 and first + event.y - 3 < len(self.lines):
            self.move(first + event.y - 3 - self._place)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.move(2)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.move(-2)


class StopQuestion(Dialog[bool]):
    """Asks before a training is stopped."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,q", "close", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self.heading = f"Stop {fit(name, 40)}?"  # type: ignore[misc]

    def parts(self) -> list[Widget]:
        stop = Option(Content("y  Stop it: SIGINT, at 30 s SIGTERM, at 60 s SIGKILL"), id="stop")
        return [OptionList(Option(Content("n  No: leave it running"), id="no"), stop)]

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id == "stop")


class CompareScreen(Dialog[None]):
    """The marked runs against the oldest of them, as `trainmon compare` tells it."""

    heading = "Comparison"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c,q", "close", show=False)]

    def __init__(self, compared: Callable[[], str]) -> None:
        super().__init__()
        self._compared = compared
        self._told = Static(Content("reading the runs…"))

    def parts(self) -> list[Widget]:
        return [VerticalScroll(self._told)]

    def on_mount(self) -> None:
        self.app.run_worker(self._run, thread=True, exit_on_error=False, name="compare")

    def _run(self) -> None:
        try:
            text = self._compared()
        except Exception as error:  # shown to the person who asked; the list itself goes on
            text = f"They could not be compared: {error}"
        self.app.call_from_thread(lambda: self._told.update(compared_text(text, self.app.size.width)))


def compared_text(text: str, screen: int) -> Content:
    """The text of a comparison for a screen of so many cells: headings stand out, and long lines keep their indent."""
    parts: list[tuple[str, str]] = []
    for line in text.strip("\n").split("\n"):
        depth = len(line) - len(line.lstrip())
        rows = wrap([(line, "")], min(WIDEST, screen) - 8, depth + 2, 99)
        parts += [("".join(part for part, _ in row) + "\n", "" if depth else "bold") for row in rows]
    return Content.assemble(*parts)


class RunsApp(App[Choice], inherit_bindings=False):
    """Returns what to open next; None where the person has left."""

    CSS_PATH = Path(__file__).with_name("trainmon.tcss")
    CSS = "RunsList { width: 100%; height: 100%; }"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q,ctrl+c", "leave", show=False),
        Binding("enter", "choose('open')", show=False),
        Binding("r", "choose('replay')", show=False),
        Binding("space", "mark", show=False),
        Binding("c", "compare", show=False),
        Binding("k", "stop", show=False),
        Binding("t", "theme", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-20)", show=False),
        Binding("pagedown", "move(20)", show=False),
        Binding("home,g", "move(-100000)", show=False),
        Binding("end,G", "move(100000)", show=False),
    ]

    def __init__(
        self,
        runs: Runs,
        compared: Callable[[list[Path]], str],
        stop: Callable[[Path, Callable[[str], None]], object],
        cursor: Path | None = None,
        said: str = "",
    ) -> None:
        """
        Args:
            compared: makes the text of a comparison; it may take seconds.
            stop: stops the training of a run, and says line by line what it does; it may block.
            cursor: the run to begin at.
            said: what to tell the person at the beginning.
        """
        environment = dict(os.environ)  # the app takes NO_COLOR out of it
        super().__init__()
        self.title = "trainmon"
        if terminal_ink(environment, self.console._color_system, config.ascii_only()).ascii:
            self._filters.append(PlainCharacters())
        self._runs, self._compared, self._stop_run = runs, compared, stop
        self._over = threading.Event()
        self._palette = PALETTES[0]
        for palette in PALETTES:
            self.register_theme(textual_theme(palette))
        self.theme = self._palette.name
        self.list = RunsList(self._palette)
        self.list.cursor = cursor
        self._said = said

    def get_default_screen(self) -> BoardScreen:
        return BoardScreen()

    def compose(self) -> ComposeResult:
        yield self.list

    def on_mount(self) -> None:
        self.animation_level = "none"
        if self._said:
            self.notify(fit(self._said, 300), markup=False)
        threading.Thread(target=self._look, name="runs", daemon=True).start()

    def on_unmount(self) -> None:
        self._over.set()

    def _look(self) -> None:
        """In a thread: look again and again; at once where reports are still to be read."""
        while not self._over.is_set():
            groups = self._runs.look()
            if not self._over.is_set():
                self.post_message(Looked(groups, self._runs.reading))
            self._over.wait(0.05 if self._runs.reading else LOOK_SECONDS)

    def on_looked(self, message: Looked) -> None:
        self.list.take(message.groups, message.reading)

    def action_leave(self) -> None:
        self.exit(None)

    def action_move(self, rows: int) -> None:
        self.list.move(rows)

    def action_choose(self, what: str) -> None:
        line = self.list.at()
        if line is not None and line.path is not None:
            self.exit((what, line.path))

    def action_mark(self) -> None:
        line = self.list.at()
        if line is None:
            return
        paths = {line.path} if line.path is not None else {run.path for run in line.group.rows}
        self.list.marked = self.list.marked - paths if paths <= self.list.marked else self.list.marked | paths
        self.list.move(1)

    def action_compare(self) -> None:
        chosen = [line.path for line in self.list.lines if line.path is not None and line.path in self.list.marked]
        if len(chosen) < 2:
            self.notify("Mark two runs or more with Space; c compares them", markup=False)
            return
        self.push_screen(CompareScreen(partial(self._compared, chosen[::-1])))  # the oldest is what they are held to

    def action_stop(self) -> None:
        line = self.list.at()
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
