"""The dashboard's application: takes Views from a feed, and keys from a person."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.color import ColorSystem
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.message import Message

from monitor import lasting
from monitor.model.report import View
from monitor.settings import config
from monitor.settings.keymap import DEFAULT
from monitor.tui import cursor
from monitor.tui.actions import bindings, spelled, with_keys
from monitor.tui.board import Board
from monitor.tui.economy import BoardScreen
from monitor.tui.feed import Feed, StopTraining
from monitor.tui.ink import Ink, PlainCharacters
from monitor.tui.ink import ink as terminal_ink
from monitor.tui.lane import lane, two_lanes
from monitor.tui.link import LinkDriver, Pacer
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.metric import chosen
from monitor.tui.ring import News, Ring, sound
from monitor.tui.screens.every import SCREEN_CLASSES
from monitor.tui.screens.help import HelpScreen
from monitor.tui.screens.metrics import MetricScreen
from monitor.tui.screens.page import PageScreen
from monitor.tui.screens.palette import PaletteScreen
from monitor.tui.screens.quit import QuitScreen, StopScreen
from monitor.tui.themes import PhaseTones, palettes, textual_theme
from monitor.tui.wishes import Wishes, leave

SETTLED = 5.0  # seconds until all is loaded, and painted once
FORGET = 30.0  # seconds between two times at which what is cached for pictures is let go
CHARTS_ABREAST = 2  # about as many columns as the widest chart of the overview has: a press moves by one of them


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
    is_replay: ClassVar[bool] = False
    AUTO_FOCUS = None  # nothing stands out until the person chooses

    def __init__(
        self,
        feed: Feed,
        *,
        title: str,
        stop_training: StopTraining | None = None,
        low_bandwidth: bool = False,
        bell_at_alerts: bool = False,
        wishes: Wishes | None = None,
        ink: Ink | None = None,
    ) -> None:
        """
        Args:
            wishes: how to begin; where they are given, the next dashboard will begin as this one ends.
            ink: what the terminal lacks; None: to be found out.
        """
        environment = dict(os.environ)  # the app takes NO_COLOR out of it
        super().__init__(driver_class=LinkDriver)
        self.title = title
        ink = ink or terminal_ink(environment, self.console._color_system, config.ascii_only())
        if ink.ascii:
            self._filters.append(PlainCharacters())
        self._palettes = palettes(ink.patterns)
        self.keys = config.keys()
        self.actions = with_keys(self.keys)
        self.board = Board()
        if wishes is not None and wishes.hidden is not None:
            self.board.hidden = set(wishes.hidden)
        self._feed = feed
        self._stop_training = stop_training
        self._pacer = Pacer(low_bandwidth)
        if low_bandwidth and self.console._color_system == ColorSystem.TRUECOLOR:
            self.console._color_system = ColorSystem.EIGHT_BIT  # half the bytes a colour
        self._news = News() if bell_at_alerts else None
        self._held_back = False  # a picture is due when the link can take it
        self._phases = PhaseTones()
        self._wishes = wishes
        themes = {each.name: each for each in self._palettes}
        self._palette = themes.get(wishes.theme or "" if wishes else "", self._palettes[0])
        self._metric: str | None = None
        self._paused = False
        self._cursor: int | None = None  # a step
        self._host = False  # on a GPU the host's clock, in place of the GPU's, which leads
        self._newest: View | None = None
        self._shown: View | None = None  # the one on screen: an older one while paused
        for palette in self._palettes:
            self.register_theme(textual_theme(palette))
        self.theme = self._palette.name

    def get_default_screen(self) -> BoardScreen:
        return BoardScreen()

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.animation_level = "none"
        self.set_keymap({name: spelled(keys) for name, keys in self.keys.items() if keys != DEFAULT[name]})
        if self._wishes is not None and self._wishes.screen is not None:
            self.action_show(self._wishes.screen)
        self._feed.start(self._take)
        if not self.is_headless:
            self.set_timer(SETTLED, self._settle)

    def _settle(self) -> None:
        caches = lasting.large_caches()
        lasting.settled()
        self.set_interval(FORGET, partial(lasting.emptied, caches))

    def on_unmount(self) -> None:
        self._feed.stop()

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End; what is on screen now is where the next dashboard begins."""
        if self._wishes is not None:
            page = self._page
            screen = page.body.screen_name if page is not None else None
            leave(Wishes(self._palette.name, tuple(sorted(self.board.hidden)), screen))
        super().exit(*arguments, **options)

    def _take(self, view: View) -> None:
        """Called from the feed's thread."""
        said = self._news.of(view) if self._news is not None else None
        if said is not None:
            self.post_message(Ring(said))
        self.post_message(Fresh(view))

    def on_ring(self, message: Ring) -> None:
        sound(self, message.text)

    def on_fresh(self, message: Fresh) -> None:
        first = self._newest is None
        self._newest = message.view
        if first:
            self._show_newest()
        elif not self._held_back:
            self._show_when_due()

    def _show_when_due(self) -> None:
        """Show the newest View as soon as the link can take it."""
        wait = 0.0 if self._paused else self._pacer.wait(self._driver)
        self._held_back = wait > 0
        if wait > 0:
            self.set_timer(wait, self._show_when_due)
        elif not self._paused:
            self._show_newest()

    def _show_newest(self) -> None:
        self._shown = self._newest
        self._draw()
        if self._sync_available:  # a terminal that has answered before
            self.call_after_refresh(self._pacer.ask, self._driver)

    def on_terminal_supports_synchronized_output(self) -> None:
        self._pacer.answered()

    @property
    def look(self) -> Look:
        chosen = self._metric, self._paused, self.is_replay, self._cursor
        return Look(self.title, self._palette, self._phases, *chosen, self.actions, self._host)

    def _draw(self) -> None:
        """Hand the View on screen to everything that draws; each part decides whether anything changed for it."""
        view = self._shown
        if view is None:
            return
        report = view.report
        rows = [*report.phases, *report.host_phases]
        named = [*view.phase_seconds, *(row.name for row in rows), *report.wall.spans]
        self._phases.learn(named)
        look = self.look
        page = self._page
        if page is None:
            self.board.make_room(view, look)
        for part in page.parts if page is not None else self.board.parts:
            part.show(view, look)

    @property
    def _page(self) -> PageScreen | None:
        """The screen that has taken the place of the overview, dialogs aside."""
        below = next((screen for screen in reversed(self.screen_stack) if not screen.is_modal), None)
        return below if isinstance(below, PageScreen) else None

    def action_show(self, name: str) -> None:
        """Open a screen in place of what is there; the one that is open is closed."""
        page = self._page
        if page is not None and page.body.screen_name == name:
            self._close_page()
        elif page is not None:
            self.switch_screen(SCREEN_CLASSES[name]())
        else:
            self.push_screen(SCREEN_CLASSES[name]())
        self.call_after_refresh(self._draw)

    def _close_page(self) -> None:
        if self._page is not None:
            self.pop_screen()
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
        page = self._page
        self.push_screen(HelpScreen(page.body if page is not None else None, self.actions))

    def action_palette(self) -> None:
        page = self._page
        name = page.body.screen_name if page is not None else None
        self.push_screen(PaletteScreen(name, self.actions), self._run_chosen)

    async def _run_chosen(self, action: str | None) -> None:
        if action is not None:
            await self.run_action(action, self)

    def action_pause(self) -> None:
        self._paused = not self._paused
        if not self._paused:
            self._shown = self._newest
        self._draw()

    def action_theme(self) -> None:
        self._palette = self._palettes[(self._palettes.index(self._palette) + 1) % len(self._palettes)]
        self.theme = self._palette.name
        self._draw()

    def action_lane(self) -> None:
        """Show steps and phases by the other clock, on every screen that has them, where there are two."""
        if self._shown is not None and two_lanes(self._shown.report):
            self._host = not self._host
            self._draw()

    def action_cursor(self, columns: int) -> None:
        """Move the time cursor; it appears at the newest step. Where no chart of the steps is, it stays."""
        page = self._page
        if self._shown is None or (page is not None and page.body.screen_name != "charts"):
            return
        curve = lane(self._shown, self._host).step_seconds
        self._cursor = cursor.moved(curve, self._cursor, self.size.width // CHARTS_ABREAST, columns)
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
        self._close_page()
        self._rearrange(lambda: self.board.go_to(name))

    def action_maximise(self) -> None:
        if self._page is None:
            self._rearrange(self.board.maximise)

    def action_restore(self) -> None:
        page = self._page
        if self._cursor is not None and (page is None or page.body.screen_name == "charts"):
            self._cursor = None
            self._draw()
        elif page is None:
            self._rearrange(self.board.restore)
        elif not page.leave():
            self._close_page()

    @property
    def _focused_panel(self) -> Panel | None:
        page = self._page
        return page.body if page is not None else self.board.focused_panel

    def action_scroll(self, rows: int) -> None:
        panel = self._focused_panel
        if panel is not None:
            panel.scroll_rows(rows)

    def action_scroll_page(self, pages: int) -> None:
        panel = self._focused_panel
        if panel is not None:
            panel.scroll_rows(pages * max(1, panel.size.height - 2))

    def action_scroll_end(self, end: int) -> None:
        self.action_scroll(end * 1_000_000)
