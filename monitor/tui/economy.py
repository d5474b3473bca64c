"""Sends to the terminal only the cells that changed, and of their colours only what is not set already.

Textual's partial update writes each dirty row of a widget from the widget's left edge, however little of it was asked
for, and each piece with all of its colours. On a slow link that is most of the traffic. So the update made here is
cropped at both ends, and drawn with one pen for all of it.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.screen import Screen
from textual.strip import Strip

Codes = tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]  # attributes, text colour, background

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
    def render_segments(self, console: Console) -> str:
        pen = Pen(console._color_system)
        for y, strips in enumerate(self.strips, self.region.y):
            x = self.region.x
            for strip in strips:
                pen.write(x, y, strip)
                x += strip.cell_length
        return pen.finish()


class CroppingCompositor(Compositor):
    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        update = super().render_full_update(simplify)
        return WholeUpdate(update.strips, update.region)

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return None if update is None else CroppedUpdate(update.chops, update.spans, update.chop_ends)


class BoardScreen(Screen[None]):
    """The screen of the dashboard."""

    def __init__(self) -> None:
        super().__init__(id="_default")
        self._compositor = CroppingCompositor()
