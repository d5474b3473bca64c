"""The actions of the dashboard with those of the board's panels, and Textual's bindings for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from textual.binding import Binding, BindingType

from monitor.keymap import ASK_TO_QUIT, FOCUS_NEXT, GLOBAL_ACTIONS, SCREEN_ACTIONS, Action
from monitor.tui.panels.base import board_panels

PANELS = tuple(panel.place for panel in board_panels())
_PANELS_AT = GLOBAL_ACTIONS.index(FOCUS_NEXT)
ACTIONS: tuple[Action, ...] = (
    *GLOBAL_ACTIONS[:_PANELS_AT],
    *(
        Action(f"panel('{panel.name}')", (str(panel.number),), f"{panel.title}: go to it; again: hide it")
        for panel in PANELS
    ),
    *GLOBAL_ACTIONS[_PANELS_AT:],
)


def bindings(actions: Iterable[Action]) -> list[BindingType]:
    """Return Textual's bindings; those with configurable keys have their setting as id."""
    return [
        Binding(
            spelled(action.keys), action.name, action.help, show=False,
            priority=action.name == ASK_TO_QUIT.name,  # works under dialogs, too
            id=action.setting or None,
        )
        for action in actions
    ]  # fmt: skip


def screen_bindings(screen: str) -> list[BindingType]:
    """Return the bindings of a screen's own keys."""
    return bindings(replace(action, name=f"body({action.name!r})") for action in SCREEN_ACTIONS[screen])


def spelled(keys: tuple[str, ...]) -> str:
    """Return keys as Textual takes them: separated by commas."""
    return ",".join("comma" if key == "," else key for key in keys)
