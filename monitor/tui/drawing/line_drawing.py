"""Draw lines in braille: the only code that calls plotext.

plotext 6 is C++ behind ctypes. A single nan or inf among its points aborts the process, and a point far outside the
limits is interpolated cell by cell until memory runs out. So it gets only finite values, scaled to 0..1, a few
points per column; values that were left out or cut are returned as marks. It is imported when the first chart
is drawn, because the import takes longer than the rest of the start-up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Any

from monitor.tui.drawing.chart import Axis, linear
from monitor.tui.drawing.curve_columns import MAX_FIRST, MIN_AFTER_FIRST, Bucket, Grid
from monitor.tui.drawing.rows import Row, merged

Point = tuple[float, float]
Series = tuple[int, str, tuple[tuple[Point, ...], ...]]  # number, tone, and joined points

_OVER, _LINE = 18, 17  # plotext's color numbers, used to identify the series of a cell
_ANSI = re.compile(r"\x1b\[([0-9;]*)m|([^\x1b]+)")
_BLANK = " \u2800"  # the second is braille without a dot
_BRAILLE = 0x2800
_DOTS = (0xC0, 0x24, 0x12, 0x09)  # both dots of each of a cell's rows, from the bottom
_BAND_SIGNS = [[chr(_BRAILLE + sum(_DOTS[low : high + 1])) for high in range(4)] for low in range(4)]
_SAME = 1e-9  # of a value: smaller differences are rounding errors of a constant
_MAX_GAP = 3  # times the median distance between values: a line does not bridge a longer gap
_MAX_SPREADS = 3.0  # values further outside would flatten the rest of the chart


@dataclass(frozen=True)
class Picture:
    """A drawn line: rows of braille, their axis, and the columns in which values are missing or cut."""

    rows: list[Row]
    axis: Axis
    gaps: frozenset[int]  # all values are nan or infinite
    above: frozenset[int]  # cut at the upper limit
    below: frozenset[int]
    beyond: tuple[float, ...] = ()  # what was cut: the value furthest from the limits first


def limits(values: Iterable[float], least: float = 0.0) -> tuple[float, float]:
    """Return limits that hold all finite values, except single outliers that would flatten the rest.

    Args:
        least: the minimum distance of the limits: smaller differences are noise.
    """
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 0.0, 1.0
    low, high = finite[0], finite[-1]
    if len(finite) >= 8:
        twentieth = max(1, len(finite) // 20)
        first, last = finite[twentieth], finite[-1 - twentieth]
        spread = last / 2 - first / 2 or max(abs(first) / 20, 5e-324)  # halves cannot overflow
        if high / 2 - last / 2 > _MAX_SPREADS * spread:
            high = last + spread
        if first / 2 - low / 2 > _MAX_SPREADS * spread:
            low = first - spread
    if not high / 4 - low / 4 > max(1e-300, _SAME * max(abs(low / 4), abs(high / 4))):
        room = abs(low) * 0.1 if abs(low) > 1e-290 else 1.0
        low, high = (low - room if low else 0.0), high + room  # a constant 0 lies on the lower edge
    if high / 4 - low / 4 < least / 4:
        room = (least - (high - low)) / 2
        low, high = (0.0, least) if 0 <= low < room else (low - room, high + room)  # no axis below 0 for counts
    return max(low, -1.7e308), min(high, 1.7e308)


def silences(buckets: Sequence[Bucket | None]) -> set[int]:
    """Return the buckets before which a curve has a long gap, which the line does not bridge.

    Values that are rare but regular, as of an evaluation, stay joined.
    """
    known = [index for index, bucket in enumerate(buckets) if bucket is not None]
    if len(known) < 2:
        return set()
    apart = [after - before for before, after in pairwise(known)]
    within = sum(bucket.count - 1 for bucket in buckets if bucket is not None)  # values that follow in the same bucket
    typical = median([*apart, *[1] * min(within, len(known))])
    return {after for before, after in pairwise(known) if after - before > _MAX_GAP * typical}


def line(
    buckets: Sequence[Bucket | None],
    grid: Grid,
    width: int,
    height: int,
    tone: str,
    band: str,
    over: Sequence[Bucket | None] = (),
    over_tone: str = "",
    least: float = 0.0,
    upright: Callable[[float, float, int], Axis] = linear,
    opens: bool = False,
    one_scale: bool = False,
) -> Picture:
    """Draw the means of `buckets` as a line over the band of their lows and highs, in width x height cells.

    Args:
        opens: the first bucket has the run's first step, which must not flatten the others.
        over: a second line on the same grid, with limits of its own unless `one_scale`.
        least: the minimum distance of the limits.
        upright: returns the axis for a lower limit, an upper limit and a number of rows.
    """
    known = [bucket for bucket in buckets if bucket is not None and math.isfinite(bucket.mean)]
    beside = [bucket for bucket in over if bucket is not None and math.isfinite(bucket.mean)] if one_scale else []
    ends = _limits_of([*known, *beside], least)
    if opens and len(known) > MIN_AFTER_FIRST:
        after = _limits_of([*known[1:], *beside[1:]], least)
        ends = after if ends[1] / 4 - ends[0] / 4 > MAX_FIRST * (after[1] / 4 - after[0] / 4) else ends
    axis = upright(*ends, max(1, height))
    low, high = axis.low, axis.high
    dots = max(1, 4 * height - 1)

    def scaled(value: float) -> float:
        part = (value / 4 - low / 4) / (high / 4 - low / 4)
        return round(min(1.0, max(0.0, part)) * dots) / dots  # in whole dots, so that small changes redraw nothing

    runs: list[list[Point]] = [[]]
    apart = silences(buckets)
    bars: dict[int, tuple[int, int]] = {}  # column -> lowest and highest dot of its band
    gaps, above, below = set(), set(), set()
    beyond: list[float] = []
    for index, bucket in enumerate(buckets[:width]):
        at = grid.column(index)
        if bucket is None or at >= width:
            continue
        if not math.isfinite(bucket.mean):
            gaps.add(at)
            runs.append([])
            continue
        if index in apart:
            runs.append([])
        runs[-1].append((float(at), scaled(bucket.mean)))
        if bucket.low < bucket.high:
            reach = round(scaled(bucket.low) * dots), round(scaled(bucket.high) * dots)
            upto = max(at + 1, grid.edge(index + 1) - grid.bars)
            bars |= dict.fromkeys(range(min(at, grid.edge(index)), min(width, upto)), reach)
        if max(bucket.high, bucket.mean) > high:
            above.add(at)
            beyond.append(max(bucket.high, bucket.mean))
        if min(bucket.low, bucket.mean) < low:
            below.add(at)
            beyond.append(min(bucket.low, bucket.mean))
    second = (
        ((_OVER, over_tone, _line_alone(over, grid, width, dots, (low, high) if one_scale else None)),) if over else ()
    )
    series = (*second, (_LINE, tone, tuple(map(tuple, runs))))
    rows = _over_band(_braille(series, width, height), bars, band)
    beyond.sort(key=lambda value: -abs(value / 4 - low / 4))
    return Picture(rows, axis, frozenset(gaps), frozenset(above), frozenset(below), tuple(beyond))


def _limits_of(buckets: Iterable[Bucket], least: float) -> tuple[float, float]:
    return limits([value for bucket in buckets for value in (bucket.low, bucket.high, bucket.mean)], least)


def _over_band(rows: Iterable[Row], bars: Mapping[int, tuple[int, int]], tone: str) -> list[Row]:
    """Return a drawn line with a band in the cells that it leaves free: a cell has one color, and the line stays thin.

    Args:
        bars: column -> lowest and highest dot, counted from the bottom.
    """
    rows = list(rows)
    if not bars:
        return rows
    out: list[Row] = []
    for line, row in enumerate(rows):
        bottom = 4 * (len(rows) - 1 - line)
        cells = [(sign, own) for text, own in row for sign in text]
        for at, (low, high) in bars.items():
            if low <= bottom + 3 and high >= bottom and at < len(cells) and cells[at][0] in _BLANK:
                cells[at] = _BAND_SIGNS[max(0, low - bottom)][min(3, high - bottom)], tone
        out.append(merged(cells))
    return out


def _line_alone(
    buckets: Sequence[Bucket | None], grid: Grid, width: int, dots: int, ends: tuple[float, float] | None
) -> tuple[tuple[Point, ...], ...]:
    """Return the means as joined points, scaled between limits; None: their own."""
    means = [None if bucket is None else bucket.mean for bucket in buckets[:width]]
    low, high = ends or limits([mean for mean in means if mean is not None])
    runs: list[list[Point]] = [[]]
    apart = silences(buckets)
    for index, mean in enumerate(means):
        at = grid.column(index)
        if mean is None or at >= width:
            continue
        if index in apart or not math.isfinite(mean):
            runs.append([])
        if not math.isfinite(mean):
            continue
        part = min(1.0, max(0.0, (mean / 4 - low / 4) / (high / 4 - low / 4)))
        runs[-1].append((float(at), round(part * dots) / dots))
    return tuple(map(tuple, runs))


_plotext: Any = None


def _module() -> Any:
    global _plotext
    if _plotext is None:
        import plotext

        plotext.terminal.limit(False, False)  # otherwise charts are limited to the terminal's size at import
        plotext.figure.axes(False)
        _plotext = plotext
    return _plotext


@lru_cache(maxsize=16)  # a new step rarely changes a dot of a long curve
def _braille(series: tuple[Series, ...], width: int, height: int) -> tuple[Row, ...]:
    """Draw each run of points, joined by lines. Points must be finite, x within the width and y within 0..1."""
    blank: list[Row] = [[(" " * width, "text")] for _ in range(height)]
    if width < 2 or height < 1 or not any(run for _, _, runs in series for run in runs):
        return tuple(blank)
    plotext = _module()
    figure = plotext.figure  # shared by all charts: a new one costs twice as much. Only the app's thread draws
    figure.clear.data()
    figure.plot_size(width, height)
    tones = {number: tone for number, tone, _ in series}
    for number, _, runs in series:
        points = [point for run in runs for point in run]
        if not points:
            continue
        marker = plotext.marker("braille", plotext.pixel(number))
        signal = figure.signal([x for x, _ in points], [y for _, y in points], marker=marker).lines()
        begin = 0
        for run in runs:
            if run:
                signal.line(begin, False)
                begin += len(run)
        figure.draw(signal)
    figure.ruler("x").lim(0, width - 1).frequency(0)
    # plotext draws the limits in the middle of the lowest and the highest cell: half a cell lies beyond each.
    half = 1.5 / (4 * height - 1) if height > 1 else 0.0
    figure.ruler("y").lim(half, 1 - half).frequency(0)
    rows = [_row(text, tones) for text in figure.build().string().split("\n")]
    return (*rows[:height], *blank[len(rows) :])


def _row(text: str, tones: dict[int, str]) -> Row:
    """Return a line of plotext's output as spans; its foreground color numbers identify the series."""
    row: Row = []
    tone = "text"
    for match in _ANSI.finditer(text):
        codes, cells = match.groups()
        if cells is not None:
            row.append((cells, tone))
        elif codes.startswith("38;5;"):
            tone = tones.get(int(codes[5:]), "text")
        elif codes in ("", "0"):
            tone = "text"
    return row
