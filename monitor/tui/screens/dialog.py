"""What all dialogs share: a titled box in the middle that Escape closes."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import OptionList

Answer = TypeVar("Answer")
WIDEST = 110  # cells of a wide box, as in trainmon.tcss
WIDE_PART = 0.9  # of the screen's height: a wide box at most, as there
MOST_ROWS = 24  # of a list
KEYS, FEW_KEYS = 9, 5  # cells of the keys: what the longest needs, and most of them where there is little room
NARROW = 80  # cells of such a screen


def keyed(key: str, meaning: str, screen: int) -> str:
    """A key and what it does, on a screen of so many cells."""
    return f"{key:>{FEW_KEYS if screen < NARROW else KEYS}}  {meaning}"


class Dialog(ModalScreen[Answer]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]
    AUTO_FOCUS = "*"
    wide: ClassVar[bool] = False
    widest: ClassVar[int] = WIDEST  # of a wide one
    heading: ClassVar[str] = ""

    def parts(self) -> list[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        box = Vertical(*self.parts(), id="dialog", classes="wide" if self.wide else None)
        if self.wide:
            box.styles.width = self.widest
        box.border_title = Content(self.heading)
        box.border_subtitle = Content("Esc closes")
        yield box

    @property
    def _scrolled(self) -> list[Widget]:
        """What can be longer than its box."""
        return [*self.query(VerticalScroll), *self.query(OptionList)]

    def on_mount(self) -> None:
        for each in self._scrolled:
            for what in ("scroll_y", "virtual_size"):
                self.watch(each, what, self._look_for_more)

    def on_resize(self) -> None:
        self._keep_within()
        self._look_for_more()

    def _keep_within(self) -> None:
        """Lists end where their box does, which may be all of a low screen: else what is chosen lies below its edge."""
        box = self.query_one("#dialog")
        room = int((WIDE_PART if self.wide else 1) * self.size.height) - box.gutter.height
        for each in self.query(OptionList):
            beside = [other for other in box.children if other is not each]
            taken = sum(other.outer_size.height + other.styles.margin.height for other in beside)
            each.styles.max_height = max(1, min(MOST_ROWS, room - taken))

    def _look_for_more(self) -> None:
        self.call_after_refresh(self._say_more)

    def _say_more(self) -> None:
        """That there is more below, as lists say it."""
        more = any(each.scroll_y < each.max_scroll_y for each in self._scrolled)
        self.query_one("#dialog").border_subtitle = Content("↓ more   Esc closes" if more else "Esc closes")

    def action_close(self) -> None:
        self.dismiss(None)
