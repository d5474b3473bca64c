"""The help: every action there is, from the one list of actions."""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from monitor.tui.actions import ACTIONS, SCREEN_ACTIONS, Action
from monitor.tui.rows import column, fit, row_width, text_width, wrap
from monitor.tui.screens.dialog import KEYS, Dialog, keyed
from monitor.tui.screens.page import Body

GAP = 3  # cells between the keys and what lies beside them
LEAST_BESIDE = 48  # cells of that: less breaks most of its lines
ABREAST = 176  # cells of the box, where the screen is as wide

_NOTES = (
    ("–", "is unknown, never zero"),
    ("×", "a value that is not finite (nan, inf)"),
    ("▲", "a slow step"),
    ("▴ ▾", "in a chart: a value beyond its limits"),
    ("↑ ↓", "in a list: there is more"),
    ("C E B", "a checkpoint was written; an evaluation ran; both"),
    ("│", "in a chart: the time cursor"),
    ("━", "over the steps: a GPU was held back"),
)


_OVERVIEW = (
    "The overview answers five questions: is it running, how fast, where does the time go, why, and what would make it"
    " faster. The coloured line below the head is the verdict, and the screen why has its evidence. A letter opens a"
    " screen, Esc comes back.",
)


def help_text(body: Body | None, actions: tuple[Action, ...], screen: int, room: int) -> str:
    """What `?` says: of the screen that is open first, then all that works everywhere.

    Where there is room, the signs and what the screen has of its own lie beside the keys.

    Args:
        screen: cells of the screen.
        room: cells of a line in the box.
    """
    meaning = text_width(f" {keyed('', '', screen)}")
    about = body.about if body is not None else _OVERVIEW
    own = SCREEN_ACTIONS[body.screen_name] if body is not None else ()
    lines = [f" {keyed(action.shown, action.help, screen)}" for action in own]
    heading = ["On this screen", *lines, ""] if lines else []
    everywhere = ["Everywhere", *(f" {keyed(action.shown, action.help, screen)}" for action in actions)]
    signs = ["Signs", *(f" {keyed(sign, what, screen)}" for sign, what in _NOTES)]
    above = [*hanging("\n\n".join(about), room), ""]
    keys = max(map(text_width, everywhere))
    beside = room - keys - GAP
    if beside < LEAST_BESIDE:
        return "\n".join([*above, *hanging("\n".join([*heading, *everywhere, "", *signs]), room, meaning)])
    others = hanging("\n".join([*heading, *signs]), beside, meaning)
    left, right, width = (others, everywhere, beside) if own else (everywhere, others, keys)
    pairs = zip_longest(left, right, fillvalue="")
    return "\n".join([*above, *(f"{column(one, width)}{' ' * GAP}{other}".rstrip() for one, other in pairs)])


def hanging(text: str, width: int, meaning: int = KEYS + 3) -> list[str]:
    """`text` broken into lines of `width`, those of a key's meaning below their beginning, behind `meaning` cells."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = meaning if line.startswith(" ") else 0
        rows = wrap([(line, "text")], width, indent, 99)
        if row_width(rows[0]) < indent < len(line):  # the first word of a narrow line
            rows = [[(fit(line, width), "text")]]
        lines += ["".join(part for part, _ in row) for row in rows]
    return lines


class HelpScreen(Dialog[None]):
    heading = "Help"
    wide = True
    widest = ABREAST
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1,q", "close", show=False)]

    def __init__(self, body: Body | None = None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__()
        self._body, self._actions = body, actions

    def parts(self) -> list[Widget]:
        return [VerticalScroll(Static(Content(self.text())))]

    def text(self) -> str:
        return help_text(self._body, self._actions, self.app.size.width, self.room)

    @property
    def room(self) -> int:
        """Cells of a line in the box: without its frame, its margins and the scroll bar."""
        return min(self.widest, self.app.size.width) - 8
