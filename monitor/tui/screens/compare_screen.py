"""The marked runs compared: as text, and the curves of two of them one over the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from monitor.keymap import COMPARISON_ACTIONS
from monitor.model.comparison.overlays import Overlay
from monitor.palettes import Palette
from monitor.tui.actions import bindings
from monitor.tui.drawing.chart import linear
from monitor.tui.drawing.curve_columns import fold, grid
from monitor.tui.drawing.line_drawing import line
from monitor.tui.drawing.rows import Row, fit, printable, side_by_side, wrap
from monitor.tui.drawing.themes import style
from monitor.tui.panels.curve_panels import CHART_GUTTER, framed, steps_axis
from monitor.tui.screens.dialogs import MAX_BOX_WIDTH, Dialog

CHART_ROWS = 8
MIN_CHART_WIDTH, GAP = 44, 3  # cells
BEFORE_TONE, AFTER_TONE = "muted", "accent"


@dataclass(frozen=True, slots=True)
class RunsCompared:
    text: str  # of all of them with the first
    names: tuple[str, str] = ("", "")  # of the first and the last
    overlays: tuple[Overlay, ...] = ()  # of these two


class CompareScreen(Dialog[None]):
    """The marked runs compared with the oldest of them, as by `trainmon compare`, and curves of the first and last."""

    heading = "Comparison"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = bindings(COMPARISON_ACTIONS)

    def __init__(self, compared: Callable[[], RunsCompared], palette: Palette) -> None:
        super().__init__()
        self._compared = compared
        self._palette = palette
        self._text = Static(Content("reading the runs…"))

    def parts(self) -> list[Widget]:
        return [VerticalScroll(self._text)]

    def on_mount(self) -> None:
        self.app.run_worker(self._run, thread=True, exit_on_error=False, name="compare")

    def _run(self) -> None:
        try:
            compared = self._compared()
        except Exception as error:  # shown in the dialog; the list itself keeps working
            compared = RunsCompared(f"They could not be compared: {error}")
        self.app.call_from_thread(lambda: self._text.update(self._content(compared)))

    def _content(self, compared: RunsCompared) -> Content:
        width = min(MAX_BOX_WIDTH, self.app.size.width) - 8
        answer, *more = compared.text.strip("\n").split("\n\n")  # what differs by how much, then its parts
        rows = [row for line in answer.split("\n") for row in text_rows(line, width)]
        rows += charts(compared, width)
        rows += [row for part in more for line in ("", *part.split("\n")) for row in text_rows(line, width)]
        spans = [
            (text, str(style(self._palette, tone)) if tone else "") for row in rows for text, tone in [*row, ("\n", "")]
        ]
        return Content.assemble(*spans)


def text_rows(text: str, width: int) -> list[Row]:
    """Return a line of a comparison: headings in bold, long lines wrapped with their indent."""
    depth = len(text) - len(text.lstrip())
    return wrap([(text, "" if depth else "text bold")], width, depth + 2, 99)


def charts(compared: RunsCompared, width: int) -> list[Row]:
    """Return the curves, two beside each other where they have room."""
    beside = 2 if width >= 2 * MIN_CHART_WIDTH + GAP else 1
    own = (width - GAP * (beside - 1)) // beside
    drawn = [overlay_rows(overlay, compared.names, own) for overlay in compared.overlays]
    rows: list[Row] = []
    for at in range(0, len(drawn), beside):
        rows += [[], *side_by_side(drawn[at : at + beside], own, GAP)]
    return rows


def overlay_rows(overlay: Overlay, names: tuple[str, str], width: int) -> list[Row]:
    """Return a chart of two curves on one scale, by step, under the name of what they show and of their runs."""
    room = width - CHART_GUTTER
    layout = grid(overlay.after, room, overlay.before)
    if layout is None:
        return []
    picture = line(
        fold(overlay.after, layout), layout, room, CHART_ROWS, AFTER_TONE, "faint",
        fold(overlay.before, layout), BEFORE_TONE, upright=linear, opens=True, one_scale=True,
    )  # fmt: skip
    half = max(8, width // 3)
    head: Row = [(f"{printable(fit(overlay.name, half))}  ", "text bold")]
    for name, tone in zip(names, (BEFORE_TONE, AFTER_TONE), strict=True):
        head += [("⠒⠒ ", tone), (f"{printable(fit(name, half))}  ", "text")]
    return [head, *framed(picture.rows, picture.axis.labels, CHART_GUTTER), steps_axis(layout, CHART_GUTTER, room)]
