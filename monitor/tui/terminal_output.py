"""Write to the terminal only what has changed: changed cells, and color codes that are not set already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from time import monotonic

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from monitor.tui.textual_private import (
    ChopsUpdate,
    Compositor,
    LayoutUpdate,
    OwnCompositorScreen,
    color_system,
)

# Textual's partial update writes each dirty row of a widget from the widget's left edge, however little of it changed,
# and each piece with all of its colors. On a slow link that is most of the traffic. The updates made here are cropped
# at both ends, and drawn with one pen that remembers the colors that are set.

Codes = tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]  # attributes, text color, background

Rows = Sequence[Iterable[Strip]]

# Seconds in which a layout is painted again, on a busy machine, too; nobody else clears the terminal within them.
MAX_REPAINT_GAP = 0.25
PLAIN: Codes = (frozenset(), (), ())
RESET = "\x1b[0m"
_ATTRIBUTES = (
    ("bold", "1"), ("dim", "2"), ("italic", "3"), ("underline", "4"), ("blink", "5"), ("reverse", "7"), ("strike", "9"),
)  # fmt: skip
_SHOW_ON_SPACES = frozenset(("4", "7", "9"))


@lru_cache(maxsize=4096)
def codes(style: Style, system: ColorSystem) -> Codes:
    """Return the codes of a style for a terminal with this color system."""
    front = style.color.downgrade(system).get_ansi_codes(True) if style.color is not None else ()
    back = style.bgcolor.downgrade(system).get_ansi_codes(False) if style.bgcolor is not None else ()
    return frozenset(code for name, code in _ATTRIBUTES if getattr(style, name)), tuple(front), tuple(back)


class Pen:
    """Collect pieces of text as terminal output; track the cursor and the colors that are set."""

    def __init__(self, system: ColorSystem | None) -> None:
        self._system = system
        self._now = PLAIN
        self._place: tuple[int, int] | None = None
        self._parts: list[str] = []

    def write(self, x: int, y: int, strip: Strip) -> None:
        """Write a piece of a row at cell (x, y); move the cursor only if it is elsewhere."""
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
            attributes, front = now[0], now[1]  # the text color of a space is invisible
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
        """Return all that was written, followed by a reset of the colors if any is set."""
        return "".join([*self._parts, RESET] if self._now != PLAIN else self._parts)


class CroppedUpdate(ChopsUpdate):
    """A partial update, cropped to the cells that changed."""

    def render_segments(self, console: Console) -> str:
        pen = Pen(color_system(console))
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= last or end <= first:
                    continue
                begin = max(x, first)
                pen.write(begin, y, strip if x >= first and end <= last else strip.crop(begin - x, min(end, last) - x))
        return pen.finish()


class WholeUpdate(LayoutUpdate):
    """A full update without the rows that the terminal already shows (`shown`)."""

    def __init__(self, rows: Rows, region: Region, shown: Rows = ()) -> None:
        super().__init__(list(rows), region)
        self._shown = shown or [()] * len(rows)

    def render_segments(self, console: Console) -> str:
        pen = Pen(color_system(console))
        for y, (row, shown) in enumerate(zip(self.strips, self._shown, strict=True), self.region.y):
            if row == shown:
                continue
            x = self.region.x
            for strip in row:
                pen.write(x, y, strip)
                x += strip.cell_length
        return pen.finish()


class CroppingCompositor(Compositor):
    _painted: tuple[float, Region, Rows] | None = None  # the last full update, and when (monotonic seconds)

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Return a full update; right after another one of the same region, only the rows that differ.

        Textual paints a new layout twice in a row.
        """
        update = super().render_full_update(simplify)
        if simplify:  # a screenshot for a file
            return update
        rows, now = [list(strips) for strips in update.strips], monotonic()
        shown: Rows = ()
        if self._painted is not None:
            when, region, before = self._painted
            shown = before if now - when < MAX_REPAINT_GAP and region == update.region else shown
        self._painted = now, update.region, rows
        return WholeUpdate(rows, update.region, shown)

    def note_hold(self) -> None:
        """Note that the next update waits for the last one: the time that takes is no gap."""
        if self._painted is not None:
            self._painted = (monotonic(), *self._painted[1:])

    def forget(self) -> None:
        """Note that something else was painted over the last full update."""
        self._painted = None

    def render_partial_update(self) -> ChopsUpdate | None:
        self.forget()
        update = super().render_partial_update()
        return None if update is None else CroppedUpdate(update.chops, update.spans, update.chop_ends)


class LeanScreen(OwnCompositorScreen):
    """A screen that sends only the cells that changed."""

    def __init__(self, id: str | None = None) -> None:
        self.compositor = CroppingCompositor()
        super().__init__(self.compositor, id)

    def note_hold(self) -> None:
        self.compositor.note_hold()

    def note_cleared(self) -> None:
        self.compositor.forget()

    def on_screen_suspend(self) -> None:
        self.compositor.forget()
