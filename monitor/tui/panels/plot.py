"""The frame around a picture: labels on the left, and a line chart of one curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from monitor.model.report import Curve
from monitor.tui.chart import Picture, line, nice
from monitor.tui.columns import Grid, fold, grid
from monitor.tui.cursor import column_of, crossed, footed
from monitor.tui.rows import Row, column, text_width

GUTTER = 9  # cells before a line chart
LEAST_SCALE = 5  # rows from which on there is room for more labels than those of the limits
MOST_TICKS = 6
_CLOSE = 1e-6  # of a tick's distance: what arithmetic leaves of none


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


def steps_axis(layout: Grid, gutter: int, width: int) -> Row:
    """`step 1 ... 214`: the last step's number ends below its column."""
    first = f"step {max(1, layout.start):,}"
    if layout.last <= max(1, layout.start):
        return [(" " * gutter + first, "muted")]
    final = f"{layout.last:,}"
    end = max(min(width, layout.columns), text_width(first) + 2 + text_width(final))
    return [(" " * gutter + first, "muted"), (final.rjust(end - text_width(first)), "muted")]


def ticks(low: float, high: float, height: int) -> list[float]:
    """Round values between two limits, about two rows apart at least; the limits where there are not three of them."""
    span = high / 4 - low / 4  # so that it cannot overflow
    if height < LEAST_SCALE or not 1e-300 < span < 1e300:
        return [low, high]
    for gap in (max(2.0, (height - 1) / MOST_TICKS), 1.5):
        step = nice(4 * span * gap / (height - 1))
        first, last = math.ceil(low / step - _CLOSE), math.floor(high / step + _CLOSE)
        if last - first >= 2:
            return [step * number for number in range(first, last + 1)]
    return [low, high]


def log_ticks(low: float, high: float, height: int) -> list[float]:
    """The same between decimal logarithms: powers of ten, and where there are few of them what lies between."""
    gap = 2.0 * (high - low) / max(1, height - 1)
    every = max(1, math.ceil(gap))
    powers = range(math.floor(low), math.ceil(high) + 1, every)
    for parts in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        found = [power + math.log10(part) for power in powers for part in parts]
        found = [each for each in found if low - _CLOSE <= each <= high + _CLOSE]
        if len(found) >= 3 and all(two - one >= gap for one, two in pairwise(found)):
            return found
    return [low, high]


def scale(told: Sequence[tuple[float, str]], low: float, high: float, height: int) -> list[str]:
    """A label a row: each of `told` beside the row in which its value lies."""
    labels = [""] * height
    for value, label in told:
        part = (value / 4 - low / 4) / (high / 4 - low / 4)
        labels[height - 1 - round(min(1.0, max(0.0, part)) * (4 * height - 1)) // 4] = label
    return labels


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Values with as many digits as tell them apart."""
    step = min((two - one for one, two in pairwise(values)), default=0.0)
    return [(value, _label(value, step)) for value in values]


def _label(value: float, step: float = 0.0) -> str:
    if abs(value) < step / 1000:
        return "0"
    if step > 1e-4 and abs(value) < 1e5:
        digits = next((digits for digits in range(5) if abs(round(step, digits) - step) < step / 1000), 5)
        if len(text := f"{value:,.{digits}f}") <= GUTTER - 2:
            return text
    if 100 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    for unit, factor in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if 1e5 <= abs(value) < 1000 * factor:
            return f"{value / factor:,.4g}{unit}"
    return f"{value:.3g}".replace("e-0", "e-")


def line_chart(
    curve: Curve, width: int, height: int, over: Curve | None = None, logarithmic: bool = False,
    pointed: int | None = None, beside: Curve | None = None,
) -> list[Row]:  # fmt: skip
    """A curve as a line with its band of lows and highs, its limits and its first and last step.

    Args:
        over: a second curve, drawn between limits of its own.
        pointed: the step that the time cursor points at.
        beside: a curve of the same steps in a chart beside this one.
        logarithmic: the curve holds decimal logarithms; its limits are labelled with what they stand for.
    """
    if height < 3 or not curve.x:
        return [[("  nothing yet", "muted")]]
    gutter = GUTTER
    layout = grid(curve, width - gutter, beside)
    if layout is None:
        return []
    buckets = fold(curve, layout)
    second = fold(over, layout) if over is not None else []
    picture = line(buckets, layout, width - gutter, height - 1, "accent", "faint", second, "warning")
    signs = marks(picture, width - gutter)
    if signs:  # they need a row: the line is drawn again in what is left
        picture = line(buckets, layout, width - gutter, height - 2, "accent", "faint", second, "warning")
    low, high, tall = picture.low, picture.high, len(picture.rows)
    if logarithmic:
        told = [(each, _label(10.0 ** min(each, 300.0))) for each in log_ticks(low, high, tall)]
    else:
        told = labelled(ticks(low, high, tall))
    column = column_of(layout, pointed, width - gutter)
    rows = framed(crossed(picture.rows, column), scale(told, low, high, tall), gutter)
    if signs:
        rows.append([(" " * gutter, "text"), *signs])
    foot = None if column is None else gutter + column
    rows.append(footed(steps_axis(layout, gutter, width - gutter), foot))
    return rows
