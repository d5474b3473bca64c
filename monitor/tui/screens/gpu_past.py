"""The readings that are kept of a GPU, as curves. Pure."""

from __future__ import annotations

import math
from functools import partial
from statistics import fmean

from monitor import units as fmt
from monitor.model.curves import stretches
from monitor.model.detail_rows import GpuDetail, figure_of
from monitor.model.report import Curve, GpuRow
from monitor.tui.axis import linear
from monitor.tui.chart import line
from monitor.tui.columns import fold, grid
from monitor.tui.panels.plot import GUTTER, band_told, framed
from monitor.tui.rows import Row, row_width
from monitor.tui.screens.charts import GAP, beside

# Of each figure its unit, and how far the limits of its chart are apart at least: less is noise.
PAST = (
    ("sm_clock", "clock, MHz", 1, 200.0), ("power", "power, W", 1, 100.0),
    ("temperature", "temperature, °C", 1, 10.0), ("memory_used", "memory, GiB", 2**30, 2.0),
)  # fmt: skip
PAST_WIDTH, PAST_HEIGHT = 44, 8  # of one of these charts at least: less shows no curve
ROOMY, PAST_MOST = 12, 20  # rows from which on those that could stand in one row are made larger, and at most


def past(gpu: GpuRow, detail: GpuDetail, width: int, height: int) -> list[Row]:
    """The readings that are kept of a GPU, as curves, in what `height` rows leave room for."""
    height -= 2  # a gap and a heading
    across = max(1, min(len(PAST), width // PAST_WIDTH))
    if across > 2 and height >= 2 * (ROOMY if across == len(PAST) else PAST_HEIGHT):
        across = 2  # in a square: none stands alone, and each is larger
    lines = min(-(-len(PAST) // across), height // PAST_HEIGHT)
    if lines < 1 or len(detail.readings) < 2:
        return []
    span = fmt.age(detail.readings[-1].t - detail.readings[0].t)
    heading = f" GPU {gpu.index} in the last {span}"
    wide, tall = (width - GAP * (across - 1)) // across, min(PAST_MOST, height // lines)
    title: Row = [(heading, "text bold"), (f"   {len(detail.readings):,} readings", "muted")]
    if len(detail.readings) > wide - GUTTER:  # a column stands for several of them
        words = next((words for words in band_told() if row_width([*title, *words]) + 3 <= width), [])
        title += [("   ", "text"), *words]
    rows: list[Row] = [[], title]
    for first in range(0, lines * across, across):
        charts = []
        for name, label, unit, least in PAST[first : first + across]:
            values = [value / unit for value in figure_of(detail.readings, name)]
            over: Row = [(f"   {label}", "text"), (f"   {limit(gpu, detail, name)}", "muted")]
            charts.append([over, *_curve(values, span, wide, tall - 1, least)])
        rows += beside(charts, wide, tall)
    return rows


def limit(gpu: GpuRow, detail: GpuDetail, name: str) -> str:
    """The limit that applies to a figure, where it is known."""
    slows = detail.readings[-1].slows_at
    return {
        "sm_clock": f"at most {gpu.sm_clock_max:,}" if gpu.sm_clock_max else "",
        "power": f"limit {gpu.power_limit:.0f}" if gpu.power_limit else "",
        "temperature": f"slows down at {slows:.0f}" if slows else "",
        "memory_used": f"of {gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "",
    }[name]


def _curve(values: list[float], span: str, width: int, height: int, least: float) -> list[Row]:
    curve = _spread(values, width - GUTTER)
    layout = grid(curve, width - GUTTER)
    if layout is None or not any(math.isfinite(value) for value in values):
        return [[("   the driver does not tell it", "muted")]]
    upright = partial(linear, whole=True)  # no figure is known to fractions of its unit
    buckets = fold(curve, layout)
    picture = line(buckets, layout, width - GUTTER, height - 1, "accent", "faint", least=least, upright=upright)
    foot: Row = [(" " * GUTTER + f"{span} ago", "muted")]
    newest = GUTTER + layout.columns - row_width(foot)
    return [*framed(picture.rows, picture.axis.labels, GUTTER), [*foot, (f"{'newest':>{newest}}", "muted")]]


def _spread(values: list[float], columns: int) -> Curve:
    """The values in as many parts, nearly alike in size, as there are columns; what is unknown counts in none."""
    groups = [known or [math.nan] for known in stretches(values, max(1, columns))]
    means = list(map(fmean, groups))
    return Curve(list(map(float, range(len(groups)))), means, list(map(min, groups)), list(map(max, groups)))
