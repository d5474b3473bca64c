"""The keys, made from the list of actions. A click on one does what the key does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import groupby

from textual.events import Click

from monitor.model.report import View
from monitor.tui.actions import ACTIONS, LANE, LEAP_WORDS, PANELS, Action
from monitor.tui.lane import GPU_CLOCK, HOST_CLOCK, two_lanes
from monitor.tui.panels.base import Look, Rows
from monitor.tui.rows import Row, row_width, text_width

GAP = 3  # cells between two keys
MORE = " …"  # there are keys that had no place: the help has them
_PANELS = "app.focus_next"
_FOR_ALL = {  # one for many like it: a click on it does what the one does
    _PANELS: ("1–8", "panels"),
    "screen.body('move(1)')": ("↑↓", "scroll"),
}
_AT_THE_END = {  # of a replay: how names of actions begin, and the words in their place; there it can only go back
    "pause": "start over", "replay_step(-": "back", "replay_seek(-": f"back {LEAP_WORDS}", "replay_": "",
}  # fmt: skip


def named(actions: Iterable[Action]) -> list[Action]:
    """Those that are told in a footer."""
    told = [_for_all(action) for action in actions]
    return [action for action in told if action.footer]


def _for_all(action: Action) -> Action:
    keys, words = (action.shown, action.footer) if action.footer else _FOR_ALL.get(action.name, (action.shown, ""))
    return replace(action, shown=keys, footer=words)


def numbers(absent: Collection[str]) -> str:
    """The keys of the panels that there are: `1–5, 7`."""
    there = [number for number, (name, _) in enumerate(PANELS, 1) if name not in absent]
    runs = [[number for _, number in run] for _, run in groupby(enumerate(there), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


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
        shown = numbers(self._absent)
        told = [replace(each, shown=shown, footer="panels") if each.name == _PANELS else each for each in actions]
        told = [replace(each, footer=self._other_clock) if each.name == LANE else each for each in told]
        return told if going_on else [_ended(action, replay) for action in told]

    @property
    def _other_clock(self) -> str:
        """The one that is not on screen; empty where there is but one."""
        if self._view is None or self._look is None or not two_lanes(self._view.report):
            return ""
        return GPU_CLOCK if self._look.host else HOST_CLOCK

    @property
    def _absent(self) -> Collection[str]:
        """The panels that have nothing to show."""
        board = getattr(self.app, "board", None) if self.is_attached else None
        return getattr(board, "absent", ())

    def data(self, view: View, look: Look) -> object:
        clocks = look.host, two_lanes(view.report)
        return look.paused, look.actions, view.report.outcome.state, sorted(self._absent), clocks

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
