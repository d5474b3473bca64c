"""The dashboard's app: shows the Views of a feed and handles keys."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from rich.color import ColorSystem
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.message import Message

from monitor import memory_tuning, settings
from monitor.keymap import DEFAULT_KEYS, with_keys
from monitor.model.view import View
from monitor.palettes import PhaseTones, palettes
from monitor.tui.actions import ACTIONS, bindings, spelled
from monitor.tui.drawing import time_cursor
from monitor.tui.drawing.board import Board
from monitor.tui.drawing.characters import PlainCharacters, TerminalCapabilities
from monitor.tui.drawing.characters import ink as terminal_ink
from monitor.tui.drawing.clock_lanes import lane, two_lanes
from monitor.tui.drawing.curve_columns import Zoom, zoomed
from monitor.tui.drawing.svg_fonts import without_fonts
from monitor.tui.drawing.themes import textual_theme
from monitor.tui.feed import (
    AskForTrace,
    Feed,
    NewAlerts,
    Preferences,
    Ring,
    StopTraining,
    TellStacks,
    ring_bell,
    save_preferences,
)
from monitor.tui.panels.base import Panel, Rows, ViewOptions
from monitor.tui.panels.curve_panels import chosen
from monitor.tui.panels.phases_panel import colored_names
from monitor.tui.refresh_rate import RefreshRate
from monitor.tui.screens.dialogs import (
    AskForTraceScreen,
    HelpScreen,
    MetricScreen,
    PaletteScreen,
    QuitScreen,
    StacksScreen,
    StopScreen,
)
from monitor.tui.screens.page import ListBody, PageScreen, screen_classes
from monitor.tui.terminal_output import LeanScreen
from monitor.tui.textual_private import (
    CountingDriver,
    add_filter,
    answers_questions,
    color_system,
    driver_of,
    report_mouse,
    set_color_system,
)
from trainhooks.protocol.rundir import slug

MAX_STEM = 120  # characters of the name of a picture
SETTLE_SECONDS = 5.0  # until everything is loaded and painted once
ZOOM = 1.5  # times as many steps: a notch of the wheel, or a key press
CHARTS_ACROSS = 2  # the screen's width divided by this is about a chart's; a key press moves the cursor by a column


class NewView(Message):
    """There is a new View. A newer message in the queue replaces an older one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, NewView)


class TrainmonApp(App[str], inherit_bindings=False):
    """The dashboard of a run. Its result is `detach`, or `ended` if the training ended before the dashboard closed."""

    CSS_PATH = Path(__file__).with_name("trainmon.tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    is_replay: ClassVar[bool] = False
    AUTO_FOCUS = None  # no panel has the focus at first

    def __init__(
        self,
        feed: Feed,
        *,
        title: str,
        stop_training: StopTraining | None = None,
        ask_for_trace: AskForTrace | None = None,
        tell_stacks: TellStacks | None = None,
        card: Callable[[View], str] | None = None,
        low_bandwidth: bool = False,
        bell_at_alerts: bool = False,
        preferences: Preferences | None = None,
        ink: TerminalCapabilities | None = None,
    ) -> None:
        """
        Args:
            card: returns the short report, to copy.
            preferences: the theme and panels to start with; if given, they are saved on exit.
            ink: what the terminal lacks; None to detect it.
        """
        environment = dict(os.environ)  # before the app removes NO_COLOR from it
        super().__init__(driver_class=CountingDriver)
        self.title = title
        ink = ink or terminal_ink(environment, color_system(self.console), settings.ascii_only())
        if ink.ascii:
            add_filter(self, PlainCharacters())
        self._palettes = palettes(ink.patterns)
        self.keys = settings.keys()
        self.actions = with_keys(self.keys, ACTIONS)
        self.board = Board()
        if preferences is not None and preferences.hidden is not None:
            self.board.hidden = set(preferences.hidden)
        self._feed = feed
        self._stop_training = stop_training
        self._ask_for_trace = ask_for_trace
        self._tell_stacks = tell_stacks
        self._card = card
        self._refresh_rate = RefreshRate(low_bandwidth)
        if low_bandwidth and color_system(self.console) == ColorSystem.TRUECOLOR:
            set_color_system(self.console, ColorSystem.EIGHT_BIT)  # half the bytes a color
        self._news = NewAlerts() if bell_at_alerts else None
        self._held_back = False  # whether a View waits until the connection has caught up
        self._panels_behind = False  # whether the panels show an older View than the header
        self._phases = PhaseTones()
        self._preferences = preferences
        themes = {palette.name: palette for palette in self._palettes}
        self._palette = themes.get(preferences.theme or "" if preferences else "", self._palettes[0])
        self._metric: str | None = None
        self._hook_before = threading.excepthook
        self._paused = False
        self._cursor: int | None = None  # a step
        self._zoom: Zoom | None = None
        self._mouse_given = False  # whether the terminal has the mouse
        self._host = False  # whether to show the host clock where there is a GPU clock
        self._newest: View | None = None  # set by the feed's thread
        self._shown: View | None = None  # the one on screen: an older one while paused
        for palette in self._palettes:
            self.register_theme(textual_theme(palette))
        self.theme = self._palette.name

    def get_default_screen(self) -> LeanScreen:
        return LeanScreen("_default")

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        self.animation_level = "none"
        self.set_keymap({name: spelled(keys) for name, keys in self.keys.items() if keys != DEFAULT_KEYS[name]})
        self._hook_before, threading.excepthook = threading.excepthook, self._thread_failed
        self._feed.start(self._receive)
        if not self.is_headless:
            self.set_timer(SETTLE_SECONDS, memory_tuning.settled)

    def on_unmount(self) -> None:
        self._feed.stop()
        threading.excepthook = self._hook_before

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """Close the dashboard where a thread of it has failed: a picture that stands would pass for the run's."""
        trace = "".join(traceback.format_exception(failed.exc_type, failed.exc_value, failed.exc_traceback))
        text = f"{trace}trainmon: the dashboard has failed (above; please report it), and nothing else: open it again"
        self.call_from_thread(self.exit, "detach", 1, Text(text))

    def exit(self, *arguments: Any, **options: Any) -> None:
        """Close the app, and save the preferences for the next dashboard."""
        if self._preferences is not None:
            save_preferences(Preferences(self._palette.name, tuple(sorted(self.board.hidden))))
        super().exit(*arguments, **options)

    def _receive(self, view: View) -> None:
        """Accept a new View. The feed's thread calls this."""
        said = self._news.of(view) if self._news is not None else None
        if said is not None:
            self.post_message(Ring(said))
        self._newest = view  # not through the message: a key press ahead of it in the queue already shows this View
        self.post_message(NewView())

    def on_ring(self, message: Ring) -> None:
        ring_bell(self, message.text)

    def on_new_view(self) -> None:
        if not self._held_back:
            self._show_when_due()

    def _show_when_due(self) -> None:
        """Show the newest View when the connection has caught up: the header at once, the panels when they are due."""
        wait = 0.0 if self._paused or self._shown is None else self._refresh_rate.wait(driver_of(self))
        self._held_back = wait > 0
        if wait > 0:
            self.set_timer(wait, self._show_when_due)
        elif not self._paused and (self._panels_behind or self._shown is not self._newest):
            until_panels = self._refresh_rate.panels_wait()
            if until_panels > 0 and not self._panels_behind:
                self.set_timer(until_panels, self._show_when_due)
            self._draw(head_only=until_panels > 0)

    def on_terminal_supports_synchronized_output(self) -> None:
        self._refresh_rate.answered()

    @property
    def view_options(self) -> ViewOptions:
        chosen = self._metric, self._paused, self.is_replay, self._cursor
        own = self.actions, self._mouse_given, self._host, self._zoom
        return ViewOptions(self.title, self._palette, self._phases, *chosen, *own)

    def _draw(self, head_only: bool = False) -> None:
        """Hand the newest View, or while paused the one on screen, to all parts; each redraws only what changed.

        Key presses call this directly: they are never delayed for a slow connection.
        """
        if not self._paused or self._shown is None:
            self._shown = self._newest
        view = self._shown
        if view is None:
            return
        page = self._page
        if page is None and not head_only:
            self.board.make_room(view, self.view_options)
        parts = page.parts if page is not None else self.board.parts
        self._draw_parts(parts[:1] if head_only else parts)
        self._panels_behind = head_only
        self.call_after_refresh(self._refresh_rate.sent, driver_of(self), answers_questions(self), not head_only)

    def _draw_parts(self, parts: Iterable[Rows]) -> None:
        view, options = self._shown, self.view_options
        if view is not None:
            self._phases.learn(colored_names(view))
            for part in parts:
                part.show(view, options)

    @property
    def _page(self) -> PageScreen | None:
        """The screen shown in place of the overview, below any dialog; None on the overview."""
        below = next((screen for screen in reversed(self.screen_stack) if not screen.is_modal), None)
        return below if isinstance(below, PageScreen) else None

    def action_show(self, name: str) -> None:
        """Open a screen in place of the current one; close it if it is open already."""
        page = self._page
        if page is not None and page.body.screen_name == name:
            self._close_page()
        else:
            screen = screen_classes()[name]()
            screen.body.begin_at(self._looked_at)
            if name == "steps" and isinstance(screen.body, ListBody) and self._cursor is not None:
                screen.body.selected = self._cursor, 1
            if page is None:
                self.push_screen(screen)
            else:
                self.switch_screen(screen)
        self.call_after_refresh(self._draw)

    @property
    def _looked_at(self) -> int | None:
        """The step that the user looks at: the opened one, or that of the time cursor."""
        opened = self._page.body.opened_step if self._page is not None else None
        return self._cursor if opened is None else opened

    def action_open(self, name: str, key: object) -> None:
        """Open an entry of the list on a screen: a step, a finding. A click calls this."""
        if self._page is None or self._page.body.screen_name != name:
            self.action_show(name)
        page = self._page
        if page is not None and isinstance(page.body, ListBody) and self._shown is not None:
            page.body.open_at(key, self._shown, self.view_options)

    def _close_page(self) -> None:
        if self._page is not None:
            self._draw_parts(self.board.parts)  # the overview was not drawn while it was covered
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

    def action_ask_for_trace(self) -> None:
        if self._ask_for_trace is not None and self._in_progress():
            self.push_screen(AskForTraceScreen(self._ask_for_trace))
        else:
            self.notify("Only a running training can be traced", markup=False)

    def action_stacks(self) -> None:
        if self._tell_stacks is not None and self._in_progress():
            self.push_screen(StacksScreen(self._tell_stacks))
        else:
            self.notify("Only a running training has stacks", markup=False)

    def action_copy(self) -> None:
        """Copy the short report of what is on screen by OSC 52, which reaches the user's clipboard over SSH, too."""
        if self._card is not None and self._shown is not None:
            self.copy_to_clipboard(self._card(self._shown))
            self.notify("Copied the short report, where the terminal lets programs copy (OSC 52)", markup=False)

    def action_write(self) -> None:
        """Write what is on screen into a new file in the working directory."""
        screen = self._page.body.screen_name if self._page is not None else "overview"
        stem = slug(f"trainmon-{self.title}-{screen}", MAX_STEM)
        try:
            file = Path(f"{stem}-{time.strftime('%H%M%S')}.svg").absolute()
            with open(file, "x", encoding="utf-8") as out:
                out.write(without_fonts(self.export_screenshot(title=" ")))
        except OSError as error:
            self.notify(f"Not written: {error.strerror or error}", severity="error", markup=False)
        else:
            self.notify(f"Wrote {file}", markup=False)

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

    def action_mouse(self) -> None:
        self._mouse_given = not self._mouse_given
        report_mouse(self, not self._mouse_given)
        self._draw()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._draw()

    def action_theme(self) -> None:
        self._palette = self._palettes[(self._palettes.index(self._palette) + 1) % len(self._palettes)]
        self.theme = self._palette.name
        self._draw()

    def action_lane(self) -> None:
        """Switch steps and phases to the other clock on all screens, where there are two."""
        if self._shown is not None and two_lanes(self._shown.report):
            self._host = not self._host
            self._draw()

    def action_cursor(self, columns: int) -> None:
        """Move the time cursor, which starts at the newest step; on screens without a chart of steps, do nothing."""
        page = self._page
        if self._shown is None or (page is not None and page.body.screen_name != "charts"):
            return
        curve = lane(self._shown, self._host).step_seconds
        wide = self.size.width // CHARTS_ACROSS
        self._cursor = time_cursor.moved(curve, self._cursor, wide, columns, self._zoom)
        self._zoom = time_cursor.followed(curve, self._cursor, self._zoom)
        self._draw()

    def action_point(self, step: int) -> None:
        """Place the time cursor. A click calls this."""
        self._cursor = step
        self._draw()

    def action_zoom(self, closer: int, step: int | None = None) -> None:
        """Show fewer steps in all charts, or more; around `step`, the time cursor, or else up to the newest."""
        page = self._page
        if self._shown is None or (page is not None and page.body.screen_name != "charts"):
            return
        curve = lane(self._shown, self._host).step_seconds
        by = 1 / ZOOM if closer > 0 else ZOOM
        self._zoom = zoomed(curve, self._zoom, by, self._cursor if step is None else step)
        self._draw()

    def _metric_names(self) -> list[str]:
        view = self._shown
        return list(dict.fromkeys([*view.metrics, *view.report.metrics])) if view is not None else []

    def action_next_metric(self) -> None:
        names = self._metric_names()
        if names and self._shown is not None:
            current = chosen(self._shown, self.view_options)
            self._set_metric(names[(names.index(current) + 1) % len(names)] if current in names else names[0])

    def action_choose_metric(self) -> None:
        if self._shown is not None and (names := self._metric_names()):
            current = chosen(self._shown, self.view_options)
            self.push_screen(MetricScreen(names, self._shown.report.metrics, current), self._set_metric)

    def _set_metric(self, name: str | None) -> None:
        if name is not None:
            self._metric = name
            self._draw()

    def action_rank(self, rank: int) -> None:
        """Show one rank on all screens."""
        self._close_page()
        self._feed.show_rank(rank)
        self.notify(f"Reading what rank {rank} has reported", timeout=2, markup=False)

    @property
    def _is_one_rank(self) -> bool:
        return self._shown is not None and self._shown.report.run.rank is not None

    def _rearrange(self, change: Callable[[], None]) -> None:
        change()
        self.call_after_refresh(self._draw)  # panels are not drawn while they are hidden

    def action_panel(self, name: str) -> None:
        self._close_page()
        self._rearrange(lambda: self.board.go_to(name))

    def action_maximize(self) -> None:
        if self._page is None:
            self._rearrange(self.board.maximize)

    def action_restore(self) -> None:
        page = self._page
        charts = page is None or page.body.screen_name == "charts"
        if charts and self._cursor is not None:
            self._cursor = None
            self._draw()
        elif charts and self._zoom is not None:
            self._zoom = None
            self._draw()
        elif page is None and self._is_one_rank and self.board.is_plain:
            self._feed.show_rank(None)
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
