"""Widgets that draw rows from a View and refresh only changed cells; the registry of the board's panels."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from monitor.keymap import Action, key_of
from monitor.model.view import View
from monitor.palettes import Palette, PhaseTones
from monitor.tui.drawing.characters import patterned
from monitor.tui.drawing.curve_columns import Zoom
from monitor.tui.drawing.rows import Row, Span, measured, merged, printable, row_width, spread, text_width
from monitor.tui.drawing.themes import style

WHEEL_ROWS = 2  # that one notch of the wheel scrolls
BLACK = Color(0, 0, 0)  # the filters take a background and do not use it


@dataclass(frozen=True)
class ViewOptions:
    """What the app adds to a View: the choices of the user."""

    title: str
    palette: Palette
    phases: PhaseTones
    metric: str | None = None
    paused: bool = False
    replay: bool = False
    cursor: int | None = None  # the step that all charts point at
    actions: tuple[Action, ...] = ()
    mouse_given: bool = False  # the terminal has the mouse, to select text
    host: bool = False  # on a GPU: steps and phases by the host's clock
    zoom: Zoom | None = None  # the steps that all charts show; None: all

    def key(self, setting: str) -> str:
        """Return the displayed key of an action; empty if there is no such action."""
        return key_of(setting, self.actions)


def strip(row: Row, width: int, palette: Palette) -> Strip:
    """Return `row` as exactly `width` styled cells, without any control character."""
    row = patterned(row) if palette.patterns else row
    safe, left = measured(row, width)
    safe.append((" " * left, "text"))
    return Strip([Segment(text, style(palette, tone)) for text, tone in merged(safe)], width)


def changed_span(old: Strip, new: Strip) -> tuple[int, int]:
    """Return the first and the last cell (exclusive) between which two strips of the same width differ."""
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
    """Return how many leading cells two texts share; 0 if either has wide characters, which must not be cut."""
    if text_width(one) != len(one) or text_width(other) != len(other):
        return 0
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)


class Rows(Widget):
    """A widget of rows. It redraws only if it is visible and its data changed, and refreshes only rows that differ."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._view: View | None = None
        self._options: ViewOptions | None = None
        self._drawn: tuple[object, ...] | None = None  # palette, size and data that the strips show
        self._rows: list[Row] = []
        self._strips: list[Strip] = []

    def data(self, view: View, options: ViewOptions) -> object:
        """Return all that `rows` reads, to compare with what was last drawn."""
        raise NotImplementedError

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        """Return at most `height` rows of at most `width` cells. Pure except for the scroll position."""
        raise NotImplementedError

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action of a click on a cell as Textual spells it, from what lays out `rows`; empty: none."""
        return ""

    async def on_click(self, event: Click) -> None:
        if self._view is not None and self._options is not None and event.button == 1:
            action = self.hit(self._view, self._options, event.x, event.y)
            if action:
                await self.app.run_action(action, self.app)

    def show(self, view: View, options: ViewOptions) -> None:
        """Take the newest View and draw it if anything that this widget shows has changed."""
        self._view, self._options = view, options
        if self.display and self.size.width > 0:
            self.draw_again()

    def draw_again(self, force: bool = False) -> None:
        if self._view is None or self._options is None or not self.display:
            return
        width, height = self.size
        basis = (self._options.palette, width, height, self.data(self._view, self._options), self.has_focus)
        if basis == self._drawn and not force:
            return
        same_size = self._drawn is not None and self._drawn[:3] == basis[:3]  # and palette
        self._drawn = basis
        rows = self.rows(self._view, self._options, width, height) if width > 0 and height > 0 else []
        rows = [*rows[:height], *([[]] * (height - len(rows)))]
        known = len(self._strips) if same_size else 0  # unchanged rows keep their strips
        palette = self._options.palette
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
        """Return the strips directly: Textual's cache of styled lines would only hold a second copy."""
        width = self.size.width  # a property that walks the widget tree
        strips = [self._line(y, width) for y in crop.line_range]
        for filter in self.get_line_filters():
            if not isinstance(filter, ANSIToTruecolor):  # all colors here are true colors
                strips = [strip.apply_filter(filter, BLACK) for strip in strips]
        first, end = crop.column_span
        return strips if (first, end) == (0, width) else [strip.crop(first, end) for strip in strips]

    def render_line(self, y: int) -> Strip:
        return self._line(y, self.size.width)

    def _line(self, y: int, width: int) -> Strip:
        if y < len(self._strips) and self._strips[y].cell_length == width:
            return self._strips[y]
        palette = self._options.palette if self._options else None
        return strip([], width, palette) if palette else Strip.blank(width, Style())

    def on_resize(self, event: Resize) -> None:
        self._strips = []
        self.draw_again(force=True)


@dataclass(frozen=True)
class Place:
    """A panel's name, its key (1 to 9), its line in the help and its position on boards of three widths."""

    name: str
    number: int
    title: str
    wide: tuple[int, int]  # band from the top, share of the band's width; a band orders its panels by number
    middle: tuple[int, int]
    narrow: int  # band; every panel has its own


class Panel(Rows):
    """A titled part of the board. Its first row is a rule with the panel's key and title."""

    can_focus = True
    place: ClassVar[Place]
    number: ClassVar[int] = 0
    short: str = ""  # a title that leaves room for the aside on a narrow panel

    def heading(self, view: View, options: ViewOptions) -> str:
        raise NotImplementedError

    def aside(self, view: View, options: ViewOptions) -> Row:
        """Return the text at the right end of the title."""
        return []

    def has_place(self, view: View, options: ViewOptions) -> bool:
        """Return whether the panel is on the board by default; False if it has nothing to show."""
        return True

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        raise NotImplementedError

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        body = self.body(view, options, width, height - 1) if height > 1 else []
        return [self._title(view, options, width), *body]

    def _title(self, view: View, options: ViewOptions, width: int) -> Row:
        focused = self.has_focus
        rule: Span = ("━" if focused else "─", "accent" if focused else "rule")
        right = self.aside(view, options)
        heading = printable(self.heading(view, options)[:256])
        for title in (heading, self.short):
            left: Row = [rule, (f" {self.number} ", "accent bold" if focused else "muted"), (f"{title} ", "text bold")]
            if title and right and row_width(left) + row_width(right) + 4 <= width:
                return spread(left, [(" ", "text"), *right, (" ", "text"), rule], width, rule)
        return spread([*left[:2], (f"{heading} ", "text bold")], [], width, rule)

    def on_focus(self) -> None:
        self.draw_again()

    def on_blur(self) -> None:
        self.draw_again()

    def scroll_rows(self, rows: int) -> None:
        """Scroll by `rows`; does nothing in a panel that shows everything."""

    def step_at(self, view: View, options: ViewOptions, x: int, y: int) -> int | None:
        """Return the step at a cell of a chart of steps; None beside one."""
        return None

    async def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        await self._turn_wheel(event, 1)

    async def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        await self._turn_wheel(event, -1)

    async def _turn_wheel(self, event: MouseScrollDown | MouseScrollUp, down: int) -> None:
        """Zoom a chart around the pointer; elsewhere scroll."""
        event.stop()
        step = None
        if self._view is not None and self._options is not None:
            step = self.step_at(self._view, self._options, event.x, event.y)
        if step is None:
            self.scroll_rows(WHEEL_ROWS * down)
        else:
            await self.app.run_action(f"zoom({-down}, {step})", self.app)


class ScrollPanel(Panel):
    """A scrollable panel. It follows its first rows, or with `from_end` its last, until scrolled away."""

    from_end: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._away = 0  # rows scrolled away from the end that it follows
        self._count: int | None = None

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        raise NotImplementedError

    def position(self, view: View, rows: list[Row]) -> int:
        """Return how many rows there have been so far, so that a scrolled panel keeps its position as more arrive."""
        return len(rows)

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        rows = self.everything(view, options, width)
        count = self.position(view, rows)
        if self._away and self._count is not None:
            self._away += max(0, count - self._count)
        self._count = count
        self._away = min(self._away, max(0, len(rows) - height))
        start = self._start(len(rows), height)
        shown = rows[start : start + height]
        # An arrow at the right end of the first or last row marks further rows.
        if shown and start > 0:
            shown[0] = spread(shown[0], [("↑", "accent")], width)
        if shown and start + height < len(rows):
            shown[-1] = spread(shown[-1], [("↓", "accent")], width)
        return shown

    def _start(self, rows: int, height: int) -> int:
        """Return the first visible one of `rows`."""
        return max(0, rows - height - self._away if self.from_end else self._away)

    def scroll_rows(self, rows: int) -> None:
        self._away = max(0, self._away + (-rows if self.from_end else rows))
        self.draw_again(force=True)


_PANELS: dict[int, type[Panel]] = {}
_PanelType = TypeVar("_PanelType", bound=type[Panel])


def on_board(
    name: str, number: int, title: str, *, wide: tuple[int, int], middle: tuple[int, int], narrow: int
) -> Callable[[_PanelType], _PanelType]:
    """Register a panel at the position that `Place` describes; board, keys, help and footer are made from it.

    Raises:
        ValueError: another panel has this number.
    """

    def register(panel: _PanelType) -> _PanelType:
        if number in _PANELS:
            raise ValueError(f"panels {name} and {_PANELS[number].place.name} have the same number, {number}")
        panel.place, panel.number = Place(name, number, title, wide, middle, narrow), number
        _PANELS[number] = panel
        return panel

    return register


def import_modules(package: str, *endings: str) -> None:
    """Import every module of `package` whose name has one of these endings."""
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.name.endswith(endings):
            import_module(f"{package}.{module.name}")


def board_panels() -> tuple[type[Panel], ...]:
    """Return every panel by number, from the modules `*_panel` and `*_panels` of this package."""
    import_modules(__package__, "_panel", "_panels")
    return tuple(panel for _, panel in sorted(_PANELS.items()))
