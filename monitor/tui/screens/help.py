"""The help: every action there is, from the one list of actions."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from monitor.tui.actions import ACTIONS
from monitor.tui.screens.dialog import Dialog

_NOTES = (
    ("–", "is unknown, never zero"),
    ("×", "a value that is not finite (nan, inf)"),
    ("▲ ↑", "a slow step; a value beyond the chart's limits"),
)


def help_text() -> str:
    lines = [f"{action.shown:>10}  {action.help}" for action in ACTIONS]
    signs = [f"{sign:>10}  {meaning}" for sign, meaning in _NOTES]
    return "\n".join([*lines, "", "Signs", *signs])


class HelpScreen(Dialog[None]):
    heading = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1,q", "close", show=False)]

    def parts(self) -> list[Widget]:
        return [VerticalScroll(Static(Content(help_text())))]
