"""The frame around a picture: labels on the left, and a line chart of one curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monitor.model.report import Curve
from monitor.tui.axis import LABEL, Axis, linear
from monitor.tui.axis import logarithmic as log_axis
from monitor.tui.chart import Picture, line
from monitor.tui.columns import Bucket, Grid, fold, grid
from monitor.tui.cursor import column_of, crossed, footed
from monitor.tui.rows import Row, column, merged, row_width, text_width

GUTTER = LABEL + 2  # cells before a line chart
ABOVE, BELOW = "▴", "▾"  # beyond the limits; `↑` and `↓` say that more can be scrolled to


def framed(picture: Sequence[Row], labels: Sequence[str], gutter: int, stands: bool = False) -> list[Row]:
    """Every row of the picture behind its label and a thin upright line.

    Args:
        stands: a label is the value of its row's lower edge, as for columns, and not of its middle, as for a line.
    """
    tick = "▁│" if stands else " ┤"
    rows = []
    for row, label in zip(picture, labels, strict=True):
        rows.append([(column(label, gutter - 2, right=True), "muted"), (tick if label else " │", "rule"), *row])
    return rows


def _marks(columns: frozenset[int], sign: str, tone: str, cells: dict[int, tuple[str, str]]) -> None:
    for at in columns:
        cells[at] = (sign, tone)


def marks(picture: Picture, width: int) -> Row:
    """A row of `×` where the value was not finite, `▴` and `▾` where it lies beyond the limits."""
    cells: dict[int, tuple[str, str]] = {}
    _marks(picture.below, BELOW, "warning", cells)
    _marks(picture.above, ABOVE, "warning", cells)
    _marks(picture.gaps, "×", "bad bold", cells)
    row: Row = []
    at = 0
    for place in sorted(place for place in cells if place < width):
        row += [(" " * (place - at), "text"), cells[place]]
        at = place + 1
    return row


_SIGNS = {"×": "not finite", ABOVE: "above the scale", BELOW: "below the scale"}


def told(signs: Row, width: int) -> Row:
    """The row of signs with what they mean beside the last one, else before the first one, where there is room."""
    kinds = {text for text, _ in signs} & _SIGNS.keys()
    words = _SIGNS[min(kinds)] if len(kinds) == 1 else "beyond the scale"
    words += " or not finite" * (len(kinds) > 1 and "×" in kinds)
    if row_width(signs) + len(words) < width:
        return [*signs, (f" {words}", "muted")]
    before = row_width(signs[:1]) if not signs[0][0].strip() else 0
    return [(f"{words:>{before - 1}} ", "muted"), *signs[1:]] if len(words) < before else signs


def band_told(steps: int = 0) -> list[Row]:
    """What the band behind a line is, the fewest words last."""
    of_steps = [f"lowest to highest of {steps:,} steps"] if steps > 1 else []
    return [[("⡇", "faint"), (f" {words}", "muted")] for words in (*of_steps, "lowest to highest", "low to high")]


def steps_axis(layout: Grid, gutter: int, width: int, between: Sequence[Row] = ()) -> Row:
    """`step 1 ... 214`: the last step's number ends below its column.

    Args:
        between: what may stand between the two: the first that has room.
    """
    first = f"step {max(1, layout.start):,}"
    if layout.last <= max(1, layout.start):
        return [(" " * gutter + first, "muted")]
    final = f"{layout.last:,}"
    room = max(min(width, layout.columns) - text_width(first) - text_width(final), 2)
    words = next((row for row in between if row and row_width(row) + 4 <= room), [])
    left = (room - row_width(words)) // 2
    right = room - row_width(words) - left
    return merged([(" " * gutter + first + " " * left, "muted"), *words, (" " * right + final, "muted")])


def _drawn(
    buckets: Sequence[Bucket | None], over: Sequence[Bucket | None], layout: Grid, width: int, height: int,
    upright: Callable[[float, float, int], Axis],
) -> tuple[Picture, Row]:  # fmt: skip
    """A line and the signs below it: these need a row, so that it is drawn again in what is left."""
    picture = line(buckets, layout, width, height, "accent", "faint", over, "warning", upright=upright)
    signs = marks(picture, width)
    if signs and height > 1:
        picture = line(buckets, layout, width, height - 1, "accent", "faint", over, "warning", upright=upright)
    return picture, signs


def line_chart(
    curve: Curve, width: int, height: int, over: Curve | None = None, logarithmic: bool = False,
    pointed: int | None = None, beside: Curve | None = None, explained: bool = True,
) -> list[Row]:  # fmt: skip
    """A curve as a line with its band of lows and highs, its limits and its first and last step.

    Args:
        over: a second curve, drawn between limits of its own.
        pointed: the step that the time cursor points at.
        beside: a curve of the same steps in a chart beside this one.
        logarithmic: the curve holds decimal logarithms; its limits are labelled with what they stand for.
        explained: what the band is stands below the chart, where there is room.
    """
    if height < 3 or not curve.x:
        return [[("  nothing yet", "muted")]]
    gutter = GUTTER
    layout = grid(curve, width - gutter, beside)
    if layout is None:
        return []
    buckets = fold(curve, layout)
    second = fold(over, layout) if over is not None else []
    upright = log_axis if logarithmic else linear
    picture, signs = _drawn(buckets, second, layout, width - gutter, height - 1, upright)
    column = column_of(layout, pointed, width - gutter)
    rows = framed(crossed(picture.rows, column), picture.axis.labels, gutter)
    if signs:
        rows.append([(" " * gutter, "text"), *told(signs, width - gutter)])
    foot = None if column is None else gutter + column
    banded = explained and any(bucket is not None and bucket.low < bucket.high for bucket in buckets)
    between = band_told(layout.steps) if banded else []
    rows.append(footed(steps_axis(layout, gutter, width - gutter, between), foot))
    return rows
