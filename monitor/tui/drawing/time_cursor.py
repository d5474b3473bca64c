"""The time cursor: a step that is marked in all charts, with each chart's value at it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.steps.series import Curve
from monitor.tui.drawing.curve_columns import Grid, Zoom, ends, grid
from monitor.tui.drawing.rows import Row, Span, text_width

LINE: Span = ("│", "accent")
FOOT: Span = ("▲", "accent bold")
_WORDS = re.compile(r"\S+(?: \S+)*")  # `step 1`, `114`
_BLANK = " ⠀"  # the second is braille without a dot


@dataclass(frozen=True)
class Moment:
    """The value at the cursor: of one step, or the mean of several."""

    first: int
    last: int
    value: float

    @property
    def name(self) -> str:
        return f"step {self.first:,}" if self.first == self.last else f"steps {self.first:,}–{self.last:,}"


def value_at(curve: Curve, step: int) -> Moment | None:
    """Return the newest value known at `step`; None before the first one."""
    index = bisect_right(curve.x, step) - 1
    if index < 0:
        return None
    first = max(1, int(curve.x[index]))
    last = int(curve.x[index]) + curve.width - 1
    if curve.end is not None and index == len(curve.x) - 1:
        last = min(last, int(curve.end))  # the newest bucket may not be full yet
    return Moment(first, max(first, last), curve.mean[index])


def moved(curve: Curve, cursor: int | None, columns: int, by: int, zoom: Zoom | None = None) -> int | None:
    """Return the cursor moved `by` columns in a chart of `columns`; without a cursor, the newest step shown."""
    reach, layout = ends(curve), grid(curve, max(1, columns), zoom=zoom)
    if reach is None or layout is None:
        return None
    if cursor is None:
        return layout.last
    return min(reach[1], max(reach[0], cursor + by * layout.steps))


def followed(curve: Curve, cursor: int | None, zoom: Zoom | None) -> Zoom | None:
    """Return the zoom moved as far as the cursor lies outside of it."""
    reach = ends(curve)
    if reach is None or cursor is None or zoom is None:
        return zoom
    first, last = zoom.span(reach[1])
    end = cursor if cursor > last else cursor + zoom.steps - 1 if cursor < first else last
    return Zoom(zoom.steps, None if end >= reach[1] else end)


def column_of(layout: Grid, cursor: int | None, width: int) -> int | None:
    """Return the column of the cursor in a chart; None if it lies outside."""
    if cursor is None:
        return None
    bucket = layout.bucket(cursor)
    column = layout.column(bucket)
    return column if 0 <= bucket < layout.count and column < width else None


def crossed(picture: Sequence[Row], column: int | None) -> list[Row]:
    """Return the picture with a vertical line in the blank cells of `column`."""
    return [_put(row, column, LINE, _BLANK) if column is not None else list(row) for row in picture]


def footed(axis: Row, column: int | None) -> Row:
    """Return the axis below a chart with the foot of the line; words that it would touch are removed."""
    if column is None:
        return axis
    out: Row = []
    begin = 0
    for text, tone in axis:
        for word in _WORDS.finditer(text):
            if begin + word.start() - 1 <= column <= begin + word.end():
                text = text[: word.start()] + " " * len(word[0]) + text[word.end() :]
        out.append((text, tone))
        begin += len(text)
    return _put(out, column, FOOT)


def _put(row: Row, column: int, mark: Span, over: str | None = None) -> Row:
    """Return `row` with `mark` in a cell; with `over`, only if the cell holds one of those characters."""
    out: Row = []
    begin = 0
    for text, tone in row:
        end = begin + text_width(text)
        if begin <= column < end and end - begin == len(text):  # not in text with wide characters
            place = column - begin
            if over is not None and text[place] not in over:
                return list(row)
            out += [(text[:place], tone), mark, (text[place + 1 :], tone)]
        else:
            out.append((text, tone))
        begin = end
    return out if begin > column else [*out, (" " * (column - begin), "text"), mark]
