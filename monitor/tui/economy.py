"""Sends to the terminal only the cells that changed, and of their colours only what is not set already.

Textual's partial update writes each dirty row of a widget from the widget's left edge, however little of it was asked
for, and each piece with all of its colours. On a slow link that is most of the traffic. So the update made here is
cropped at both ends, and drawn with one pen for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from time import monotonic

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

Codes = tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]  # attributes, text colour, background

Rows = Sequence[Iterable[Strip]]

AT_ONCE = 0.05  # seconds in which nothing else than this program has written to the terminal, or cleared it
PLAIN: Codes = (frozenset(), (), ())
RESET = "\x1b[0m"
_ATTRIBUTES = (
    ("bold", "1"), ("dim", "2"), ("italic", "3"), ("underline", "4"), ("blink", "5"), ("reverse", "7"), ("strike", "9"),
)  # fmt: skip
_SHOW_ON_SPACES = frozenset(("4", "7", "9"))


@lru_cache(maxsize=4096)
def codes(style: Style, system: ColorSystem) -> Codes:
    """What a style is on a terminal of this many colours."""
    front = style.color.downgrade(system).get_ansi_codes(True) if style.color is not None else ()
    back = style.bgcolor.downgrade(system).get_ansi_codes(False) if style.bgcolor is not None else ()
    return frozenset(code for name, code in _ATTRIBUTES if getattr(style, name)), tuple(front), tuple(back)


class Pen:
    """Writes pieces of text, and remembers what colours the terminal has set."""

    def __init__(self, system: ColorSystem | None) -> None:
        self._system = system
        self._now = PLAIN
        self._place: tuple[int, int] | None = None
        self._parts: list[str] = []

    def write(self, x: int, y: int, strip: Strip) -> None:
        """Write a piece of a row; it moves there only where it is not there already."""
        if self._place != (x, y):
            self._parts.append(f"\x1b[{y + 1};{x + 1}H")
        for text, style, control in strip:
            if not control and text:
                if self._system is not None:
                    self._change(codes(style, self._system) if style is not None else PLAIN, text.isspace())
                self._parts.append(text)
        self._place = (x + strip.cell_length, y)

    def _change(self, wanted: Codes, blank: bool) -> None:
        now, (attributes, front, back) = self._now, wanted
        if blank and not _SHOW_ON_SPACES & (attributes | now[0]):
            attributes, front = now[0], now[1]  # nobody sees the colour of a space
        if (attributes, front, back) == now:
            return
        if now[0] - attributes or (now[1] and not front) or (now[2] and not back):
            new = ["0", *sorted(attributes), *front, *back]
        else:
            new = sorted(attributes - now[0])
            new += front if front != now[1] else ()
            new += back if back != now[2] else ()
        self._now = (attributes, front, back)
        self._parts.append(f"\x1b[{';'.join(new)}m")

    def finish(self) -> str:
        """All that was written, with the terminal's colours as they were."""
        return "".join([*self._parts, RESET] if self._now != PLAIN else self._parts)


class CroppedUpdate(ChopsUpdate):
    def render_segments(self, console: Console) -> str:
        pen = Pen(console._color_system)
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= last or end <= first:
                    continue
                begin = max(x, first)
                pen.write(begin, y, strip if x >= first and end <= last else strip.crop(begin - x, min(end, last) - x))
        return pen.finish()


class WholeUpdate(LayoutUpdate):
    """A whole picture; rows that stand there already are left out."""

    def __init__(self, rows: Rows, region: Region, there: Rows = ()) -> None:
        super().__init__(list(rows), region)
        self._there = there or [()] * len(rows)

    def render_segments(self, console: Console) -> str:
        pen = Pen(console._color_system)
        for y, (row, there) in enumerate(zip(self.strips, self._there, strict=True), self.region.y):
            if row == there:
                continue
            x = self.region.x
            for strip in row:
                pen.write(x, y, strip)
                x += strip.cell_length
        return pen.finish()


class CroppingCompositor(Compositor):
    _painted: tuple[float, Region, Rows] | None = None  # the last whole picture, and when

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Textual paints a new layout twice in a row: the second time only what is not as the first one left it."""
        update = super().render_full_update(simplify)
        if simplify:  # a picture for a file
            return update
        rows, now = [list(strips) for strips in update.strips], monotonic()
        there: Rows = ()
        if self._painted is not None:
            when, region, before = self._painted
            there = before if now - when < AT_ONCE and region == update.region else there
        self._painted = now, update.region, rows
        return WholeUpdate(rows, update.region, there)

    def forget(self) -> None:
        """Something else is painted over it."""
        self._painted = None

    def render_partial_update(self) -> ChopsUpdate | None:
        self.forget()
        update = super().render_partial_update()
        return None if update is None else CroppedUpdate(update.chops, update.spans, update.chop_ends)


class LeanScreen(Screen[None]):
    """A screen that is drawn so."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._compositor: CroppingCompositor = CroppingCompositor()

    def on_screen_suspend(self) -> None:
        self._compositor.forget()


class BoardScreen(LeanScreen):
    """The screen of the dashboard."""

    def __init__(self) -> None:
        super().__init__(id="_default")
