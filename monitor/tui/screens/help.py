"""The help: every action there is, from the one list of actions."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from monitor.tui.actions import ACTIONS, SCREEN_ACTIONS, Action
from monitor.tui.rows import fit, row_width, wrap
from monitor.tui.screens.dialog import WIDEST, Dialog
from monitor.tui.screens.page import Body

_NOTES = (
    ("–", "is unknown, never zero"),
    ("×", "a value that is not finite (nan, inf)"),
    ("▲ ↑", "a slow step; a value beyond the chart's limits"),
    ("C E B", "a checkpoint was written; an evaluation ran; both"),
    ("│", "in a chart: the time cursor"),
    ("━", "over the steps: a GPU was held back"),
)


MEANING = 12  # cells before the meaning of a key
_OVERVIEW = (
    "The overview answers five questions: is it running, how fast, where does the time go, why, and what would make it"
    " faster. The coloured line below the head is the verdict, and the screen why has its evidence. A letter opens a"
    " screen, Esc comes back.",
)


def help_text(body: Body | None = None, actions: tuple[Action, ...] = ACTIONS) -> str:
    """What `?` says: of the screen that is open first, then all that works everywhere."""
    about = body.about if body is not None else _OVERVIEW
    own = SCREEN_ACTIONS[body.screen_name] if body is not None else ()
    lines = [f"{action.shown:>10}  {action.help}" for action in own]
    everywhere = [f"{action.shown:>10}  {action.help}" for action in actions]
    signs = [f"{sign:>10}  {meaning}" for sign, meaning in _NOTES]
    heading = ["On this screen", *lines, ""] if lines else []
    return "\n".join(["\n\n".join(about), "", *heading, "Everywhere", *everywhere, "", "Signs", *signs])


def hanging(text: str, width: int) -> str:
    """`text` broken into lines of `width`, those of a key's meaning below their beginning."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = MEANING if line.startswith(" ") else 0
        rows = wrap([(line, "text")], width, indent, 99)
        if row_width(rows[0]) < indent < len(line):  # the first word of a narrow line
            rows = [[(fit(line, width), "text")]]
        lines += ["".join(part for part, _ in row) for row in rows]
    return "\n".join(lines)


class HelpScreen(Dialog[None]):
    heading = "Help"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1,q", "close", show=False)]

    def __init__(self, body: Body | None = None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__()
        self._body, self._actions = body, actions

    def parts(self) -> list[Widget]:
        return [VerticalScroll(Static(Content(hanging(self.text(), self.room))))]

    def text(self) -> str:
        return help_text(self._body, self._actions)

    @property
    def room(self) -> int:
        """Cells of a line in the box: without its frame, its margins and the scroll bar."""
        return min(WIDEST, self.app.size.width) - 8
