"""The board: header, panels and footer, laid out by a pure function of the size."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from monitor.model.report import View
from monitor.tui.layout import Rect, place
from monitor.tui.panels.alerts import Alerts
from monitor.tui.panels.base import Look, Panel, Rows
from monitor.tui.panels.console import Console
from monitor.tui.panels.footer import Footer
from monitor.tui.panels.header import Header
from monitor.tui.panels.machine import Machine
from monitor.tui.panels.metric import Metric
from monitor.tui.panels.phases import Phases
from monitor.tui.panels.ranks import Ranks
from monitor.tui.panels.steps import Steps
from monitor.tui.panels.tokens import Tokens


class _BoardLayout(Layout):
    name = "board"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        assert isinstance(parent, Board)
        rects = parent.rects(size)
        return [
            WidgetPlacement(Region(*rects[child.id]), NULL_OFFSET, NULL_SPACING, child)
            for child in children
            if child.id in rects
        ]


class Board(Container):
    """Holds every part; those that have no place at this size are not displayed, and so draw nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._board_layout = _BoardLayout()
        self.hidden: set[str] = set()
        self.absent: set[str] = {"ranks"}  # nothing to show, and nobody asked for them: most runs have one rank
        self.asked: set[str] = set()
        self.guest: str | None = None
        self.alone: str | None = None
        panels = (Steps("steps"), Phases("phases"), Metric("metric"), Tokens("tokens"))
        others = (Alerts("alerts"), Console("console"), Machine("machine"), Ranks("ranks"))
        self.panels: tuple[Panel, ...] = (*panels, *others)
        self.parts: tuple[Rows, ...] = (Header("header"), *self.panels, Footer("footer"))

    @property
    def layout(self) -> Layout:
        return self._board_layout

    def compose(self) -> ComposeResult:
        yield from self.parts

    def rects(self, size: Size) -> dict[str, Rect]:
        return place(size.width, size.height, self.hidden | self.absent, self.guest, self.alone)

    def make_room(self, view: View, look: Look) -> None:
        """Leave the places of panels that have nothing to show to the others."""
        empty = {str(panel.id) for panel in self.panels if not panel.has_place(view, look)}
        if empty - self.asked != self.absent:
            self.absent = empty - self.asked
            self.arrange_again()

    def arrange_again(self) -> None:
        rects = self.rects(self.size)
        for part in self.parts:
            part.display = part.id in rects
        self.refresh(layout=True)

    def on_resize(self) -> None:
        self.arrange_again()

    def go_to(self, name: str) -> None:
        """Focus a panel, making room for it; hide it where it has the focus already."""
        panel = next(panel for panel in self.panels if panel.id == name)
        if panel.has_focus and self.alone is None:
            self.hidden.add(name)
            self.guest = None
            self.screen.set_focus(None)
        else:
            self.hidden.discard(name)
            self.asked.add(name)
            self.absent.discard(name)
            if self.alone is not None:
                self.alone = name
            elif name not in self.rects(self.size):
                self.guest = name
            panel.display = True
            panel.focus()
        self.arrange_again()

    def maximise(self) -> None:
        """Give the focused panel, or else the first one, all the room; give it back the second time."""
        if self.alone is not None:
            self.alone = None
        else:
            focused = self.focused_panel or next((panel for panel in self.panels if panel.display), self.panels[0])
            self.alone = focused.id
            focused.focus()
        self.arrange_again()

    def restore(self) -> None:
        if self.alone is not None:
            self.alone = None
            self.arrange_again()
        else:
            self.screen.set_focus(None)

    @property
    def focused_panel(self) -> Panel | None:
        return next((panel for panel in self.panels if panel.has_focus), None)
