"""The time cursor: one step that all charts point at, and what each of them tells of it. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.report import Curve
from monitor.tui.columns import Grid, ends, grid
from monitor.tui.rows import Row, Span, text_width

LINE: Span = ("│", "accent")
FOOT: Span = ("▲", "accent bold")
_WORDS = re.compile(r"\S+(?: \S+)*")  # `step 1`, `114`
_BLANK = " ⠀"  # the second is braille without a dot


@dataclass(frozen=True)
class Moment:
    """The value at the cursor: of one step, or the mean of a stretch of them."""

    first: int
    last: int
    value: float

    @property
    def name(self) -> str:
        return f"step {self.first:,}" if self.first == self.last else f"steps {self.first:,}–{self.last:,}"


def at(curve: Curve, step: int) -> Moment | None:
    """The newest value that was known at `step`; None before the first one."""
    index = bisect_right(curve.x, step) - 1
    if index < 0:
        return None
    first = max(1, int(curve.x[index]))
    last = int(curve.x[index]) + curve.width - 1
    if curve.end is not None and index == len(curve.x) - 1:
        last = min(last, int(curve.end))  # the newest bucket may not be full yet
    return Moment(first, max(first, last), curve.mean[index])


def moved(curve: Curve, cursor: int | None, columns: int, by: int) -> int | None:
    """The cursor `by` columns further in a chart of so many columns; it appears at the newest step."""
    reach, layout = ends(curve), grid(curve, max(1, columns))
    if reach is None or layout is None:
        return None
    if cursor is None:
        return reach[1]
    return min(reach[1], max(reach[0], cursor + by * layout.steps))


def column_of(layout: Grid, cursor: int | None, width: int) -> int | None:
    """The column of a chart in which the cursor lies; None where that is beside it."""
    if cursor is None:
        return None
    bucket = layout.bucket(cursor)
    column = layout.column(bucket)
    return column if 0 <= bucket < layout.count and column < width else None


def crossed(picture: Sequence[Row], column: int | None) -> list[Row]:
    """The picture with an upright line in `column`, where nothing else is drawn."""
    return [_put(row, column, LINE, _BLANK) if column is not None else list(row) for row in picture]


def footed(axis: Row, column: int | None) -> Row:
    """The axis below with the foot of the line; a number that it would touch gives way."""
    if column is None:
        return axis
    found: Row = []
    begin = 0
    for text, tone in axis:
        for word in _WORDS.finditer(text):
            if begin + word.start() - 1 <= column <= begin + word.end():
                text = text[: word.start()] + " " * len(word[0]) + text[word.end() :]
        found.append((text, tone))
        begin += len(text)
    return _put(found, column, FOOT)


def _put(row: Row, column: int, mark: Span, over: str | None = None) -> Row:
    """`row` with `mark` in a cell: in any, or only in one that holds a sign of `over`."""
    found: Row = []
    begin = 0
    for text, tone in row:
        end = begin + text_width(text)
        if begin <= column < end and end - begin == len(text):  # wide characters are not cut in two
            place = column - begin
            if over is not None and text[place] not in over:
                return list(row)
            found += [(text[:place], tone), mark, (text[place + 1 :], tone)]
        else:
            found.append((text, tone))
        begin = end
    return found if begin > column else [*found, (" " * (column - begin), "text"), mark]
