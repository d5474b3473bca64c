"""The dashboard of a recording: the same screens, plus keys that move in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from textual.binding import BindingType

from monitor.keymap import REPLAY_ACTIONS, Action, with_keys
from monitor.tui.actions import bindings
from monitor.tui.app import TrainmonApp
from monitor.tui.feed import Feed


class Playback(Feed, Protocol):
    """A feed that plays a recording. No method blocks."""

    def pause(self) -> None:
        """Pause or continue; at the end, start over."""

    def faster(self, factor: float) -> None:
        """Multiply the speed."""

    def step(self, steps: int) -> None:
        """Move by whole steps, back if negative, and pause there."""

    def seek(self, share: float) -> None:
        """Move by a share of the recording, back if negative."""


QUIT = "Quit the replay"
HINT = "A replay: {} pauses, {} and {} go by a step, {} and {} change the speed, {} and {} go by a twentieth of it"


def of_replay(actions: Sequence[Action], own: Sequence[Action]) -> tuple[Action, ...]:
    """Return `actions` with the replay's `own` near the front, and with quit in place of detach."""
    left = [_quit(action) for action in actions if action.name != "pause"]
    pause, *moves = own
    at = 1 + next(index for index, action in enumerate(left) if action.name == "help")
    # The findings and the choice of the clock come before the keys that move in time.
    return (*left[:at], pause, *left[at : at + 2], *moves, *left[at + 2 :])


def _quit(action: Action) -> Action:
    footer = "quit" if action.footer else ""
    return replace(action, help=QUIT, footer=footer) if action.name in ("detach", "ask_to_quit") else action


class ReplayApp(TrainmonApp):
    """The dashboard of a recording. Its result is always `ended`, as there is no training to leave running."""

    is_replay = True

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPLAY_ACTIONS)

    def __init__(self, feed: Playback, **options: Any) -> None:
        super().__init__(feed, **options)
        self._playback = feed
        self.actions = of_replay(self.actions, with_keys(self.keys, REPLAY_ACTIONS))

    def on_mount(self) -> None:
        actions = with_keys(self.keys, REPLAY_ACTIONS)
        pause, on, back, faster, slower, ahead, behind = (action.shown for action in actions)
        self.notify(HINT.format(pause, on, back, faster, slower, behind, ahead), timeout=8, markup=False)

    def _in_progress(self) -> bool:
        return False

    def action_pause(self) -> None:
        self._playback.pause()

    def action_replay_step(self, steps: int) -> None:
        self._playback.step(steps)

    def action_replay_faster(self, factor: float) -> None:
        self._playback.faster(factor)

    def action_replay_seek(self, share: float) -> None:
        self._playback.seek(share)
