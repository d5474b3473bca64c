"""Widgets that draw rows from a View and refresh only the cells that changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import MouseScrollDown, MouseScrollUp, Resize
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from monitor.model.report import View
from monitor.tui.actions import ACTIONS, Action
from monitor.tui.ink import patterned
from monitor.tui.rows import Row, Span, measured, merged, printable, row_width, spread, text_width
from monitor.tui.themes import Palette, PhaseTones, style

BLACK = Color(0, 0, 0)  # the filters ask for a background, and use none


@dataclass(frozen=True)
class Look:
    """What the app adds to a View: choices of the person who watches."""

    title: str
    palette: Palette
    phases: PhaseTones
    metric: str | None = None
    paused: bool = False
    replay: bool = False
    cursor: int | None = None  # the step that all charts point at
    actions: tuple[Action, ...] = ACTIONS
    host: bool = False  # on a GPU: steps and phases by the host's clock


def strip(row: Row, width: int, palette: Palette) -> Strip:
    """`row` as exactly `width` styled cells. The last guard: no control character passes here."""
    row = patterned(row) if palette.patterns else row
    safe, left = measured(row, width)
    safe.append((" " * left, "text"))
    return Strip([Segment(text, style(palette, tone)) for text, tone in merged(safe)], width)


def changed_span(old: Strip, new: Strip) -> tuple[int, int]:
    """The first and the last cell (exclusive) between which two strips of the same width differ."""
    before, after = list(old), list(new)
    first = next((index for index, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    before, after = before[first:], after[first:]
    start = sum(segment.cell_length for segment in list(new)[:first])
    end = new.cell_length
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        end -= after.pop().cell_length
        before.pop()
    if before and after and before[0].style == after[0].style:
        start += _common_cells(before[0].text, after[0].text)
    return start, max(start, end)


def _common_cells(one: str, other: str) -> int:
    """How many leading cells two texts share: many, where a run only grew. Wide characters are not cut."""
    if text_width(one) != len(one) or text_width(other) != len(other):
        return 0
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


class Rows(Widget):
    """Draws rows. It draws again only if it is visible and its data changed, and refreshes only rows that differ."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._view: View | None = None
        self._look: Look | None = None
        self._drawn: tuple[object, ...] | None = None  # palette, size and data that the strips show
        self._rows: list[Row] = []
        self._strips: list[Strip] = []

    def data(self, view: View, look: Look) -> object:
        """All that `rows` reads, to compare with what was last drawn."""
        raise NotImplementedError

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        """At most `height` rows of at most `width` cells. Pure, but for the state of scrolling."""
        raise NotImplementedError

    def show(self, view: View, look: Look) -> None:
        """Take the newest View, and draw it if anything this widget shows has changed."""
        self._view, self._look = view, look
        if self.display and self.size.width > 0:
            self.draw_again()

    def draw_again(self, force: bool = False) -> None:
        if self._view is None or self._look is None or not self.display:
            return
        width, height = self.size
        basis = (self._look.palette, width, height, self.data(self._view, self._look), self.has_focus)
        if basis == self._drawn and not force:
            return
        same_ground = self._drawn is not None and self._drawn[:3] == basis[:3]
        self._drawn = basis
        rows = self.rows(self._view, self._look, width, height) if width > 0 and height > 0 else []
        rows = [*rows[:height], *([[]] * (height - len(rows)))]
        known = len(self._strips) if same_ground else 0  # rows that stayed the same keep their strips
        palette = self._look.palette
        strips = [
            self._strips[y] if y < known and row == self._rows[y] else strip(row, width, palette)
            for y, row in enumerate(rows)
        ]
        self._rows = rows
        self._replace(strips, width)

    def _replace(self, strips: list[Strip], width: int) -> None:
        old, self._strips = self._strips, strips
        if len(old) != len(strips):
            self.refresh()
            return
        changed = []
        for y, (before, after) in enumerate(zip(old, strips, strict=True)):
            if before is not after and before != after:
                start, end = changed_span(before, after) if before.cell_length == width else (0, width)
                changed.append(Region(start, y, max(1, end - start), 1))
        if changed:
            self.refresh(*changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows as they are: without border and padding, Textual's cache of styled lines would hold them twice."""
        width = self.size.width  # looked up in the tree each time it is asked
        strips = [self._line(y, width) for y in crop.line_range]
        for each in self.get_line_filters():
            if not isinstance(each, ANSIToTruecolor):  # all colours are true ones here
                strips = [strip.apply_filter(each, BLACK) for strip in strips]
        first, end = crop.column_span
        return strips if (first, end) == (0, width) else [strip.crop(first, end) for strip in strips]

    def render_line(self, y: int) -> Strip:
        return self._line(y, self.size.width)

    def _line(self, y: int, width: int) -> Strip:
        if y < len(self._strips) and self._strips[y].cell_length == width:
            return self._strips[y]
        palette = self._look.palette if self._look else None
        return strip([], width, palette) if palette else Strip.blank(width, Style())

    def on_resize(self, event: Resize) -> None:
        self._strips = []
        self.draw_again(force=True)


class Panel(Rows):
    """A titled part of the board. Its first row is a rule that carries the title and the key that leads here."""

    can_focus = True
    number: ClassVar[int] = 0
    short: str = ""  # a title that leaves room for the aside on a narrow panel

    def heading(self, view: View, look: Look) -> str:
        raise NotImplementedError

    def aside(self, view: View, look: Look) -> Row:
        """What stands at the right end of the title."""
        return []

    def has_place(self, view: View, look: Look) -> bool:
        """Whether it takes a place without being asked for; one that can have nothing to show leaves it to others."""
        return True

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        raise NotImplementedError

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        body = self.body(view, look, width, height - 1) if height > 1 else []
        return [self._title(view, look, width), *body]

    def _title(self, view: View, look: Look, width: int) -> Row:
        focused = self.has_focus
        rule: Span = ("━" if focused else "─", "accent" if focused else "rule")
        right = self.aside(view, look)
        heading = printable(self.heading(view, look)[:256])
        for title in (heading, self.short):
            left: Row = [rule, (f" {self.number} ", "accent bold" if focused else "muted"), (f"{title} ", "text bold")]
            if title and right and row_width(left) + row_width(right) + 3 <= width:
                return spread(left, [(" ", "text"), *right, (" ", "text"), rule], width, rule)
        return spread([*left[:2], (f"{heading} ", "text bold")], [], width, rule)

    def on_focus(self) -> None:
        self.draw_again()

    def on_blur(self) -> None:
        self.draw_again()

    def scroll_rows(self, rows: int) -> None:
        """Move the visible part; a panel that shows everything at once has nothing to do."""


class ScrollPanel(Panel):
    """A panel with more rows than fit. `from_end` says which end it clings to while new rows arrive."""

    from_end: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._away = 0  # rows scrolled away from the end it clings to
        self._count: int | None = None

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        raise NotImplementedError

    def position(self, view: View, rows: list[Row]) -> int:
        """How many rows there have been so far, so that a scrolled panel stays where it was when more arrive."""
        return len(rows)

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        rows = self.everything(view, look, width)
        count = self.position(view, rows)
        if self._away and self._count is not None:
            self._away += max(0, count - self._count)
        self._count = count
        self._away = min(self._away, max(0, len(rows) - height))
        start = len(rows) - height - self._away if self.from_end else self._away
        start = max(0, start)
        shown = rows[start : start + height]
        # An arrow at the right end of the first and the last row says that more lies beyond.
        if shown and start > 0:
            shown[0] = spread(shown[0], [("↑", "accent")], width)
        if shown and start + height < len(rows):
            shown[-1] = spread(shown[-1], [("↓", "accent")], width)
        return shown

    def scroll_rows(self, rows: int) -> None:
        self._away = max(0, self._away + (-rows if self.from_end else rows))
        self.draw_again(force=True)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(2)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-2)
