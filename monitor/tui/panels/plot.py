"""The frame around a picture: labels on the left, and a line chart of one curve."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model.report import Curve
from monitor.tui.chart import Picture, line
from monitor.tui.columns import Grid, fold, grid
from monitor.tui.cursor import column_of, crossed, footed
from monitor.tui.rows import Row, column, text_width


def axis(labels: Sequence[str], height: int) -> list[str]:
    """A label a row: the first beside the highest, the last beside the lowest, nothing between."""
    if height <= 1:
        return [labels[0]][:height]
    return [labels[0], *[""] * (height - 2), labels[-1]]


def framed(picture: Sequence[Row], labels: Sequence[str], gutter: int) -> list[Row]:
    """Every row of the picture behind its label and a thin upright line."""
    rows = []
    for row, label in zip(picture, labels, strict=True):
        tick = "┤" if label else "│"
        rows.append([(column(label, gutter - 2, right=True), "muted"), (f" {tick}", "rule"), *row])
    return rows


def _marks(columns: frozenset[int], sign: str, tone: str, cells: dict[int, tuple[str, str]]) -> None:
    for at in columns:
        cells[at] = (sign, tone)


def marks(picture: Picture, width: int) -> Row:
    """A row of `×` where the value was not finite, `↑` and `↓` where it lies beyond the limits."""
    cells: dict[int, tuple[str, str]] = {}
    _marks(picture.below, "↓", "warning", cells)
    _marks(picture.above, "↑", "warning", cells)
    _marks(picture.gaps, "×", "bad bold", cells)
    row: Row = []
    at = 0
    for place in sorted(place for place in cells if place < width):
        row += [(" " * (place - at), "text"), cells[place]]
        at = place + 1
    return row


def steps_axis(layout: Grid, curve: Curve, gutter: int, width: int) -> Row:
    """`step 1 ... 214`: the last step's number ends below its column."""
    first = f"step {max(1, layout.start):,}"
    last = int(curve.x[-1]) + curve.width - 1 if curve.end is None else int(curve.end)
    if last <= max(1, layout.start):
        return [(" " * gutter + first, "muted")]
    final = f"{last:,}"
    end = max(min(width, layout.columns), text_width(first) + 2 + text_width(final))
    return [(" " * gutter + first, "muted"), (final.rjust(end - text_width(first)), "muted")]


def _label(value: float) -> str:
    if 100 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    for unit, factor in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if 1e5 <= abs(value) < 1000 * factor:
            return f"{value / factor:,.4g}{unit}"
    return f"{value:.3g}"


def line_chart(
    curve: Curve, width: int, height: int, over: Curve | None = None, logarithmic: bool = False,
    pointed: int | None = None,
) -> list[Row]:  # fmt: skip
    """A curve as a line with its band of lows and highs, its limits and its first and last step.

    Args:
        over: a second curve, drawn between limits of its own.
        pointed: the step that the time cursor points at.
        logarithmic: the curve holds decimal logarithms; its limits are labelled with what they stand for.
    """
    if height < 3 or not curve.x:
        return [[("  nothing yet", "muted")]]
    gutter = 9
    layout = grid(curve, width - gutter)
    if layout is None:
        return []
    buckets = fold(curve, layout)
    second = fold(over, layout) if over is not None else []
    picture = line(buckets, layout, width - gutter, height - 1, "accent", "faint", second, "warning")
    signs = marks(picture, width - gutter)
    if signs:  # they need a row: the line is drawn again in what is left
        picture = line(buckets, layout, width - gutter, height - 2, "accent", "faint", second, "warning")
    ends = picture.high, picture.low
    labels = [_label(10.0 ** min(end, 300.0) if logarithmic else end) for end in ends]
    column = column_of(layout, pointed, width - gutter)
    rows = framed(crossed(picture.rows, column), axis(labels, len(picture.rows)), gutter)
    if signs:
        rows.append([(" " * gutter, "text"), *signs])
    foot = None if column is None else gutter + column
    rows.append(footed(steps_axis(layout, curve, gutter, width - gutter), foot))
    return rows
