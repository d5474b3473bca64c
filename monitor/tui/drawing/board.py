"""The widget of the overview: header, panels and footer, laid out by `layout`."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from monitor.model.view import View
from monitor.tui.drawing.layout import Rect, place
from monitor.tui.panels.base import Panel, Rows, ViewOptions, board_panels
from monitor.tui.panels.footer import Footer
from monitor.tui.panels.header import Header


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
    """Holds every part; those without a place at this size are not displayed."""

    def __init__(self) -> None:
        super().__init__()
        self._board_layout = _BoardLayout()
        self.hidden: set[str] = set()
        self.absent: set[str] = {"ranks"}  # panels with nothing to show, unless asked for: most runs have one rank
        self.asked: set[str] = set()
        self.guest: str | None = None
        self.alone: str | None = None
        self.panels: tuple[Panel, ...] = tuple(panel(panel.place.name) for panel in board_panels())
        self.parts: tuple[Rows, ...] = (Header("header"), *self.panels, Footer("footer"))

    @property
    def layout(self) -> Layout:
        return self._board_layout

    def compose(self) -> ComposeResult:
        yield from self.parts

    def rects(self, size: Size) -> dict[str, Rect]:
        return place(size.width, size.height, self.hidden | self.absent, self.guest, self.alone)

    def make_room(self, view: View, options: ViewOptions) -> None:
        """Give the room of panels that have nothing to show to the others."""
        empty = {str(panel.id) for panel in self.panels if not panel.has_place(view, options)}
        if empty - self.asked != self.absent:
            self.absent = empty - self.asked
            self.arrange_again()

    def arrange_again(self) -> None:
        """Lay out all parts anew."""
        rects = self.rects(self.size)
        for part in self.parts:
            part.display = part.id in rects
        self.refresh(layout=True)

    def on_resize(self) -> None:
        self.arrange_again()

    def go_to(self, name: str) -> None:
        """Focus a panel and make room for it; hide it if it has the focus already."""
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

    def maximize(self) -> None:
        """Let the focused panel, or else the first one, fill the board; undo that the second time."""
        if self.alone is not None:
            self.alone = None
        else:
            focused = self.focused_panel or next((panel for panel in self.panels if panel.display), self.panels[0])
            self.alone = focused.id
            focused.focus()
        self.arrange_again()

    @property
    def is_plain(self) -> bool:
        """Return whether no panel has the full screen or the focus."""
        return self.alone is None and self.focused_panel is None

    def restore(self) -> None:
        """Leave full screen, or else remove the focus."""
        if self.alone is not None:
            self.alone = None
            self.arrange_again()
        else:
            self.screen.set_focus(None)

    @property
    def focused_panel(self) -> Panel | None:
        return next((panel for panel in self.panels if panel.has_focus), None)
