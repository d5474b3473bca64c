"""The dashboard on a recording: the same screens, and keys that move about in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Protocol

from textual.binding import BindingType

from monitor.settings.keymap import DEFAULT
from monitor.tui.actions import Action, bindings, key_of, with_keys
from monitor.tui.app import TrainmonApp
from monitor.tui.feed import Feed
from monitor.tui.screens.help import HelpScreen
from monitor.tui.screens.page import Body


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
    Action("pause", DEFAULT["pause"], "p", "Pause the replay, or go on; at its end begin anew", setting="pause"),
    Action("replay_step(1)", (".",), ".", "Go on by one step"),
    Action("replay_step(-1)", (",",), ",", "Go back by one step"),
    Action("replay_faster(2)", ("+",), "+", "Twice as fast"),
    Action("replay_faster(0.5)", ("-",), "-", "Half as fast"),
    Action(f"replay_seek({LEAP})", (")",), ")", "Go on by a twentieth of the recording"),
    Action(f"replay_seek(-{LEAP})", ("(",), "(", "Go back by a twentieth of it"),
)
QUIT = "Quit the replay"
HINT = "A replay: {} pauses, . and , go by a step, + and - change the speed, ( and ) leap"


def _of_replay(action: Action) -> Action:
    """Nothing runs that could be left."""
    return replace(action, help=QUIT, footer="quit") if action.name == "detach" else action


class ReplayHelp(HelpScreen):
    """The help, with the keys of a replay before the others."""

    def __init__(self, body: Body | None, actions: tuple[Action, ...], own: tuple[Action, ...]) -> None:
        super().__init__(body, actions)
        self._own = own

    def text(self) -> str:
        keys = [f"{action.shown:>10}  {action.help}" for action in self._own]
        return "\n".join(["Replay", *keys, "", super().text()])


class ReplayApp(TrainmonApp):
    """Returns `ended`: nothing runs that could be left."""

    is_replay = True

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]

    def __init__(self, feed: Playback, **options: Any) -> None:
        super().__init__(feed, **options)
        self._playback = feed
        self.actions = tuple(_of_replay(action) for action in self.actions)

    def on_mount(self) -> None:
        self.notify(HINT.format(key_of("pause", self.actions)), timeout=8, markup=False)

    def _in_progress(self) -> bool:
        return False

    def action_help(self) -> None:
        page = self._page
        own = with_keys(self.keys, ACTIONS)
        self.push_screen(ReplayHelp(page.body if page is not None else None, self.actions, own))

    def action_pause(self) -> None:
        self._playback.pause()

    def action_replay_step(self, steps: int) -> None:
        self._playback.step(steps)

    def action_replay_faster(self, factor: float) -> None:
        self._playback.faster(factor)

    def action_replay_seek(self, share: float) -> None:
        self._playback.seek(share)
