"""The footer: keys made from the list of actions. A click on one does what the key does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import groupby

from monitor.keymap import FOCUS_NEXT, LANE, LEAP_WORDS, Action
from monitor.model.view import View
from monitor.tui.actions import ACTIONS, PANELS
from monitor.tui.drawing.clock_lanes import GPU_CLOCK, HOST_CLOCK, two_lanes
from monitor.tui.drawing.rows import Row, row_width, text_width
from monitor.tui.panels.base import Rows, ViewOptions

KEY_GAP = 3  # cells between two keys
MORE_KEYS = " …"  # some keys did not fit; the help has them
_LABELS_AT_END = {  # at the end of a replay: prefixes of action names, and the words shown instead
    "pause": "start over", "replay_step(-": "back", "replay_seek(-": f"back {LEAP_WORDS}", "replay_": "",
}  # fmt: skip


def footer_actions(actions: Iterable[Action]) -> list[Action]:
    """Return the actions that a footer shows."""
    return [action for action in actions if action.footer]


def panel_keys(absent: Collection[str]) -> str:
    """Return the keys of the panels on the board: `1–5, 7`."""
    there = [panel.number for panel in PANELS if panel.name not in absent]
    runs = [[number for _, number in run] for _, run in groupby(enumerate(there), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def fitting_actions(actions: Iterable[Action], width: int) -> list[tuple[int, int, Action]]:
    """Return the actions that fit into a footer of `width` cells, each with its first and last cell (exclusive).

    The help lists all of them, so it is never left out while another action is shown. If some are left out, room for
    `MORE` is kept.
    """
    candidates = footer_actions(actions)
    if sum(action_width(action) + KEY_GAP for action in candidates) + 1 - KEY_GAP > width:
        width -= len(MORE_KEYS)
    waiting = next((action for action in candidates if action.name == "help"), None)
    shown: list[tuple[int, int, Action]] = []
    at = 1
    for action in candidates:
        waiting = None if action is waiting else waiting
        if at + action_width(action) + (KEY_GAP + action_width(waiting) if waiting is not None else 0) > width:
            break
        shown.append((at, at + action_width(action), action))
        at += action_width(action) + KEY_GAP
    if waiting is not None and at + action_width(waiting) <= width:
        shown.append((at, at + action_width(waiting), waiting))
    return shown


def action_width(action: Action) -> int:
    return text_width(f"{action.shown_in_footer} {action.footer}")


def as_ended(action: Action, replay: bool) -> Action:
    """Return the action as worded after the end of a run: quit instead of detach; a replay only goes back."""
    if action.name == "detach":
        return replace(action, footer="quit")
    words = (words for begin, words in _LABELS_AT_END.items() if action.name.startswith(begin))
    return replace(action, footer=next(words, action.footer)) if replay else action


class Footer(Rows):
    @property
    def actions(self) -> list[Action]:
        running = self._view is None or self._view.report.outcome.state == "running"
        actions = self._options.actions if self._options is not None else ACTIONS
        replay = self._options is not None and self._options.replay
        shown = panel_keys(self._absent)
        shown_actions = [
            replace(action, footer_key=shown) if action.name == FOCUS_NEXT.name else action for action in actions
        ]
        shown_actions = [
            replace(action, footer=self._other_clock) if action.name == LANE else action for action in shown_actions
        ]
        return shown_actions if running else [as_ended(action, replay) for action in shown_actions]

    @property
    def _other_clock(self) -> str:
        """Return the name of the clock that is not shown; empty if there is only one."""
        if self._view is None or self._options is None or not two_lanes(self._view.report):
            return ""
        return GPU_CLOCK if self._options.host else HOST_CLOCK

    @property
    def _absent(self) -> Collection[str]:
        """Return the names of the panels that have nothing to show."""
        board = getattr(self.app, "board", None) if self.is_attached else None
        return getattr(board, "absent", ())

    def data(self, view: View, options: ViewOptions) -> object:
        clocks = options.host, two_lanes(view.report)
        return options.paused, options.actions, view.report.outcome.state, sorted(self._absent), clocks

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        row: Row = [(" ", "text")]
        actions = self.actions
        shown = fitting_actions(actions, width)
        for begin, _, action in shown:
            label = "go on" if options.paused and action.name == "pause" else action.footer
            gap = " " * (begin - row_width(row))
            row += [(gap, "text"), (action.shown_in_footer, "accent bold"), (f" {label}", "muted")]
        if len(shown) < len(footer_actions(actions)):
            row.append((MORE_KEYS, "muted"))
        return [row]

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        fitting = fitting_actions(self.actions, self.size.width)
        return next((action.name for start, end, action in fitting if start <= x < end), "")
