"""The dashboard on a recording: the same screens, and keys that move about in time."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from monitor.tui.actions import Action
from monitor.tui.app import TrainmonApp
from monitor.tui.feed import Feed
from monitor.tui.screens.help import HelpScreen, hanging, help_text


class Playback(Feed, Protocol):
    """A feed that plays a recording. Nothing here waits for it."""

    def pause(self) -> None:
        """Pause, or go on; at the end begin anew."""

    def faster(self, factor: float) -> None:
        """Multiply the speed."""

    def step(self, steps: int) -> None:
        """Go forward or back by whole steps, and stay there."""

    def seek(self, share: float) -> None:
        """Go forward or back by a share of the recording."""


LEAP = 0.05  # of the recording: twenty presses lead through all of it

ACTIONS: tuple[Action, ...] = (
    Action("pause", ("p", "space"), "p", "Pause the replay, or go on; at its end begin anew"),
    Action("replay_step(1)", ("full_stop",), ".", "Go on by one step"),
    Action("replay_step(-1)", ("comma",), ",", "Go back by one step"),
    Action("replay_faster(2)", ("plus",), "+", "Twice as fast"),
    Action("replay_faster(0.5)", ("minus",), "-", "Half as fast"),
    Action(f"replay_seek({LEAP})", ("right_parenthesis",), ")", "Go on by a twentieth of the recording"),
    Action(f"replay_seek(-{LEAP})", ("left_parenthesis",), "(", "Go back by a twentieth of it"),
)
DETACH, QUIT = "Detach: close the dashboard, the training goes on", "Quit the replay"
HINT = "A replay: p pauses, . and , go by a step, + and - change the speed, ( and ) leap"


class ReplayHelp(HelpScreen):
    """The help, with the keys of a replay before the others."""

    def parts(self) -> list[Widget]:
        keys = [f"{action.shown:>10}  {action.help}" for action in ACTIONS]
        text = hanging("\n".join(["Replay", *keys, "", help_text()]), self.room)
        return [VerticalScroll(Static(Content(text.replace(DETACH, QUIT))))]


class ReplayApp(TrainmonApp):
    """Returns `ended`: nothing runs that could be left."""

    is_replay = True

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), action.name, action.help, show=False) for action in ACTIONS
    ]

    def __init__(self, feed: Playback, **options: Any) -> None:
        super().__init__(feed, **options)
        self._playback = feed

    def on_mount(self) -> None:
        self.notify(HINT, timeout=8, markup=False)

    def _in_progress(self) -> bool:
        return False

    def action_help(self) -> None:
        self.push_screen(ReplayHelp())

    def action_pause(self) -> None:
        self._playback.pause()

    def action_replay_step(self, steps: int) -> None:
        self._playback.step(steps)

    def action_replay_faster(self, factor: float) -> None:
        self._playback.faster(factor)

    def action_replay_seek(self, share: float) -> None:
        self._playback.seek(share)
