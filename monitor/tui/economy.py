"""Sends to the terminal only the cells that changed.

Textual's partial update writes each dirty row of a widget from the widget's left edge, however little of it was asked
for. On a slow link that is most of the traffic, so the update made here is cropped at both ends.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual.screen import Screen


class CroppedUpdate(ChopsUpdate):
    def render_segments(self, console: Console) -> str:
        parts: list[str] = []
        for y, first, last in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= last or end <= first:
                    continue
                begin = max(x, first)
                piece = strip if x >= first and end <= last else strip.crop(begin - x, min(end, last) - x)
                parts += [Control.move_to(begin, y).segment.text, piece.render(console)]
        return "".join(parts)


class CroppingCompositor(Compositor):
    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return None if update is None else CroppedUpdate(update.chops, update.spans, update.chop_ends)


class BoardScreen(Screen[None]):
    """The screen of the dashboard."""

    def __init__(self) -> None:
        super().__init__(id="_default")
        self._compositor = CroppingCompositor()
