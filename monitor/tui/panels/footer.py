"""The keys, made from the list of actions. A click on one does what the key does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from textual.events import Click

from monitor.model.report import View
from monitor.tui.actions import ACTIONS, Action
from monitor.tui.panels.base import Look, Rows
from monitor.tui.rows import Row, row_width, text_width

GAP = 3  # cells between two keys
MORE = " …"  # there are keys that had no place: the help has them
_FOR_ALL = {  # one for many like it: a click on it does what the one does
    "app.focus_next": ("1–8", "panels"),
    "screen.body('move(1)')": ("↑↓", "scroll"),
}
_AT_THE_END = {  # of a replay: how names of actions begin, and the words in their place; there it can only go back
    "pause": "again", "replay_step(-": "back", "replay_seek(-": "leap back", "replay_": "",
}  # fmt: skip


def named(actions: Iterable[Action]) -> list[Action]:
    """Those that are told in a footer."""
    told = [_for_all(action) for action in actions]
    return [action for action in told if action.footer]


def _for_all(action: Action) -> Action:
    keys, words = _FOR_ALL.get(action.name, (action.shown, action.footer))
    return replace(action, shown=keys, footer=words)


def keys(actions: Iterable[Action], width: int) -> list[tuple[int, int, Action]]:
    """The actions that fit into a footer of `width` cells, each with its first and last cell.

    The help has all of them, so it is never left out where another action has a place. Where some are left out there
    is room for the sign that says so.
    """
    told = named(actions)
    if sum(_wide(action) + GAP for action in told) + 1 - GAP > width:
        width -= len(MORE)
    waiting = next((action for action in told if action.name == "help"), None)
    shown: list[tuple[int, int, Action]] = []
    at = 1
    for action in told:
        waiting = None if action is waiting else waiting
        if at + _wide(action) + (GAP + _wide(waiting) if waiting is not None else 0) > width:
            break
        shown.append((at, at + _wide(action), action))
        at += _wide(action) + GAP
    if waiting is not None and at + _wide(waiting) <= width:
        shown.append((at, at + _wide(waiting), waiting))
    return shown


def _wide(action: Action) -> int:
    return text_width(f"{action.shown} {action.footer}")


def _ended(action: Action, replay: bool) -> Action:
    """Where nothing runs, there is nothing to detach from; and a replay leads back only."""
    if action.name == "detach":
        return replace(action, footer="quit")
    words = (words for begin, words in _AT_THE_END.items() if action.name.startswith(begin))
    return replace(action, footer=next(words, action.footer)) if replay else action


class Footer(Rows):
    @property
    def actions(self) -> list[Action]:
        going_on = self._view is None or self._view.report.outcome.state == "running"
        actions = self._look.actions if self._look is not None else ACTIONS
        replay = self._look is not None and self._look.replay
        return list(actions) if going_on else [_ended(action, replay) for action in actions]

    def data(self, view: View, look: Look) -> object:
        return look.paused, look.actions, view.report.outcome.state

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        row: Row = [(" ", "text")]
        actions = self.actions
        shown = keys(actions, width)
        for begin, _, action in shown:
            label = "go on" if look.paused and action.name == "pause" else action.footer
            gap = " " * (begin - row_width(row))
            row += [(gap, "text"), (action.shown, "accent bold"), (f" {label}", "muted")]
        if len(shown) < len(named(actions)):
            row.append((MORE, "muted"))
        return [row]

    async def on_click(self, event: Click) -> None:
        for start, end, action in keys(self.actions, self.size.width):
            if start <= event.x < end:
                await self.app.run_action(action.name, self.app)
