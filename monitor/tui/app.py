"""The dashboard's application: takes Views from a feed, and keys from a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.message import Message

from monitor.model.report import View
from monitor.tui.actions import bindings
from monitor.tui.board import Board
from monitor.tui.economy import BoardScreen
from monitor.tui.feed import Feed, StopTraining
from monitor.tui.panels.base import Look, Rows
from monitor.tui.panels.metric import chosen
from monitor.tui.screens.help import HelpScreen
from monitor.tui.screens.metrics import MetricScreen
from monitor.tui.screens.quit import QuitScreen, StopScreen
from monitor.tui.screens.why import WhyScreen
from monitor.tui.themes import PALETTES, PhaseTones, textual_theme

SLOW_LINK_SECONDS = 2.0  # between two pictures with low_bandwidth


class Fresh(Message):
    """There is a new View. A newer one takes the place of one that still waits."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Fresh)


class TrainmonApp(App[str], inherit_bindings=False):
    """Returns `detach`, or `ended` where the training had ended before the dashboard was closed."""

    CSS_PATH = Path(__file__).with_name("trainmon.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS = None  # nothing stands out until the person chooses

    def __init__(
        self, feed: Feed, *, title: str, stop_training: StopTraining | None = None, low_bandwidth: bool = False
    ) -> None:
        super().__init__()
        self.title = title
        self.board = Board()
        self._feed = feed
        self._stop_training = stop_training
        self._low_bandwidth = low_bandwidth
        self._held_back = False  # a picture is due when the timer of the slow link rings
        self._phases = PhaseTones()
        self._palette = PALETTES[0]
        self._metric: str | None = None
        self._paused = False
        self._newest: View | None = None
        self._shown: View | None = None  # the one on screen: an older one while paused
        for palette in PALETTES:
            self.register_theme(textual_theme(palette))
        self.theme = self._palette.name

    def get_default_screen(self) -> BoardScreen:
        return BoardScreen()

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.animation_level = "none"
        self._feed.start(self._take)

    def on_unmount(self) -> None:
        self._feed.stop()

    def _take(self, view: View) -> None:
        """Called from the feed's thread."""
        self.post_message(Fresh(view))

    def on_fresh(self, message: Fresh) -> None:
        first = self._newest is None
        self._newest = message.view
        if self._paused:
            return
        if self._low_bandwidth and not first:
            if not self._held_back:
                self._held_back = True
                self.set_timer(SLOW_LINK_SECONDS, self._slow_link_rings)
            return
        self._shown = self._newest
        self._draw()

    def _slow_link_rings(self) -> None:
        self._held_back = False
        if not self._paused:
            self._shown = self._newest
            self._draw()

    @property
    def look(self) -> Look:
        return Look(self.title, self._palette, self._phases, self._metric, self._paused)

    def _draw(self) -> None:
        """Hand the View on screen to everything that draws; each part decides whether anything changed for it."""
        view = self._shown
        if view is None:
            return
        self._phases.learn([*view.phase_seconds, *(phase.name for phase in view.report.phases)])
        look = self.look
        for part in self.board.parts:
            part.show(view, look)
        if self.screen.is_modal:
            for part in self.screen.query(Rows):
                part.show(view, look)

    def _open(self, screen: WhyScreen) -> None:
        self.push_screen(screen)
        self.call_after_refresh(self._draw)

    def _in_progress(self) -> bool:
        return self._newest is None or self._newest.report.outcome.state == "running"

    def action_detach(self) -> None:
        self.exit("detach" if self._in_progress() else "ended")

    def action_ask_to_quit(self) -> None:
        if not self._in_progress() or isinstance(self.screen, QuitScreen):
            self.action_detach()
            return
        self.push_screen(QuitScreen(self._stop_training is not None), self._answered)

    def _answered(self, answer: str | None) -> None:
        if answer == "detach":
            self.action_detach()
        elif answer == "stop" and self._stop_training is not None:
            self.push_screen(StopScreen(self._stop_training))

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_why(self) -> None:
        self._open(WhyScreen())

    def action_pause(self) -> None:
        self._paused = not self._paused
        if not self._paused:
            self._shown = self._newest
        self._draw()

    def action_theme(self) -> None:
        self._palette = PALETTES[(PALETTES.index(self._palette) + 1) % len(PALETTES)]
        self.theme = self._palette.name
        self._draw()

    def _metric_names(self) -> list[str]:
        view = self._shown
        return list(dict.fromkeys([*view.metrics, *view.report.metrics])) if view is not None else []

    def action_next_metric(self) -> None:
        names = self._metric_names()
        if names and self._shown is not None:
            current = chosen(self._shown, self.look)
            self._set_metric(names[(names.index(current) + 1) % len(names)] if current in names else names[0])

    def action_choose_metric(self) -> None:
        if self._shown is not None and (names := self._metric_names()):
            current = chosen(self._shown, self.look)
            self.push_screen(MetricScreen(names, self._shown.report.metrics, current), self._set_metric)

    def _set_metric(self, name: str | None) -> None:
        if name is not None:
            self._metric = name
            self._draw()

    def _rearrange(self, change: Callable[[], None]) -> None:
        change()
        self.call_after_refresh(self._draw)  # panels that appear were not drawn while they were hidden

    def action_panel(self, name: str) -> None:
        self._rearrange(lambda: self.board.go_to(name))

    def action_maximise(self) -> None:
        self._rearrange(self.board.maximise)

    def action_restore(self) -> None:
        self._rearrange(self.board.restore)

    def action_scroll(self, rows: int) -> None:
        panel = self.board.focused_panel
        if panel is not None:
            panel.scroll_rows(rows)

    def action_scroll_page(self, pages: int) -> None:
        panel = self.board.focused_panel
        if panel is not None:
            panel.scroll_rows(pages * max(1, panel.size.height - 2))

    def action_scroll_end(self, end: int) -> None:
        self.action_scroll(end * 1_000_000)
