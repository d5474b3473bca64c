"""The command palette: every action and every screen by its name, from the one list of actions."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from monitor.tui.actions import ACTIONS, SCREEN_ACTIONS, Action
from monitor.tui.screens.dialog import Dialog, keyed

_LEAVING = ("detach", "ask_to_quit")  # last: what Enter alone runs must not close the dashboard


class PaletteScreen(Dialog[str]):
    """Answers the action to run, or None."""

    heading = "What to do: type a part of its name"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "choose(1)", show=False),
        Binding("up", "choose(-1)", show=False),
    ]

    def __init__(self, screen: str | None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__()
        own = [(f"screen.body({row.name!r})", row) for row in SCREEN_ACTIONS.get(screen or "", ())]
        others = sorted((row for row in actions if row.name != "palette"), key=lambda row: row.name in _LEAVING)
        self._rows = [*own, *((row.name, row) for row in others)]
        self._shown = list(self._rows)

    def parts(self) -> list[Widget]:
        self._choices = OptionList(*self._options())  # here the size of the screen is known
        self._choices.highlighted = 0
        return [Input(), self._choices]

    def _options(self) -> list[Option]:
        return [Option(Content(keyed(row.shown, row.help, self.app.size.width))) for _, row in self._shown]

    def on_input_changed(self, event: Input.Changed) -> None:
        words = event.value.lower().split()
        self._shown = [pair for pair in self._rows if all(word in pair[1].help.lower() for word in words)]
        self._choices.clear_options()
        self._choices.add_options(self._options())
        self._choices.highlighted = 0 if self._shown else None

    def action_choose(self, rows: int) -> None:
        if self._shown:
            self._choices.highlighted = ((self._choices.highlighted or 0) + rows) % len(self._shown)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        at = self._choices.highlighted
        self.dismiss(self._shown[at][0] if at is not None and self._shown else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index][0])
