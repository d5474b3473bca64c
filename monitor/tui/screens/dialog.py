"""What all dialogs share: a titled box in the middle that Escape closes."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget

Answer = TypeVar("Answer")
WIDEST = 110  # cells of a wide box, as in trainmon.tcss


class Dialog(ModalScreen[Answer]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]
    AUTO_FOCUS = "*"
    wide: ClassVar[bool] = False
    heading: ClassVar[str] = ""

    def parts(self) -> list[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        box = Vertical(*self.parts(), id="dialog", classes="wide" if self.wide else None)
        box.border_title = Content(self.heading)
        box.border_subtitle = Content("Esc closes")
        yield box

    def action_close(self) -> None:
        self.dismiss(None)
