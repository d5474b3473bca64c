"""The GPU screen: as much of each GPU as there is room for, from one to sixteen on one screen."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from statistics import fmean

from monitor import units
from monitor.gpu_lines import BY_NAME
from monitor.keymap import OPEN, RESTORE
from monitor.model.device.throttle_watch import QUIET, ThrottleEvent
from monitor.model.report import GpuRow
from monitor.model.steps.series import Curve
from monitor.model.view import GpuDetail, View, figure_values, split_evenly
from monitor.tui.drawing.chart import linear
from monitor.tui.drawing.curve_columns import fold, grid
from monitor.tui.drawing.line_drawing import line
from monitor.tui.drawing.rows import Row, fit, printable, row_width, side_by_side, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.curve_panels import CHART_GUTTER, band_legend, framed
from monitor.tui.panels.machine_panel import fewer_seen, limits, names_width
from monitor.tui.screens.charts_screen import CHART_GAP
from monitor.tui.screens.gpu_block import (
    MAX_BRIEF_ROWS,
    MIN_NAME_WIDTH,
    REASONS_WITH_BIT,
    bars,
    block,
    label,
    model_room,
    processes,
    throttle_now,
    until,
)
from monitor.tui.screens.page import ListBody, screen

# Figures with charts: field, label, unit, minimum range of the scale (less is noise).
HISTORY_CHARTS = (
    ("sm_clock", "clock, MHz", 1, 200.0), ("power", "power, W", 1, 100.0),
    ("temperature", "temperature, °C", 1, 10.0), ("memory_used", "memory, GiB", 2**30, 2.0),
)  # fmt: skip
HISTORY_WIDTH, HISTORY_HEIGHT = 44, 8  # cells of one of these charts at least: less shows no curve
ROOMY_HEIGHT, MAX_HISTORY_HEIGHT = 12, 20  # rows from which on charts use two lines instead of one, and the maximum


def history(gpu: GpuRow, detail: GpuDetail, width: int, height: int) -> list[Row]:
    """Return charts of the kept readings of a GPU in `height` rows; empty if there is no room or one reading."""
    height -= 2  # a gap and a heading
    across = max(1, min(len(HISTORY_CHARTS), width // HISTORY_WIDTH))
    if across > 2 and height >= 2 * (ROOMY_HEIGHT if across == len(HISTORY_CHARTS) else HISTORY_HEIGHT):
        across = 2  # two by two, so that each is larger
    lines = min(-(-len(HISTORY_CHARTS) // across), height // HISTORY_HEIGHT)
    if lines < 1 or len(detail.readings) < 2:
        return []
    span = units.age(detail.readings[-1].t - detail.readings[0].t)
    heading = f" GPU {gpu.index} in the last {span}"
    wide, tall = (width - CHART_GAP * (across - 1)) // across, min(MAX_HISTORY_HEIGHT, height // lines)
    title: Row = [(heading, "text bold"), (f"   {len(detail.readings):,} readings", "muted")]
    if len(detail.readings) > wide - CHART_GUTTER:  # a column covers several readings
        words = next((words for words in band_legend() if row_width([*title, *words]) + 3 <= width), [])
        title += [("   ", "text"), *words]
    rows: list[Row] = [[], title]
    for first in range(0, lines * across, across):
        charts = []
        for name, heading_text, unit, least in HISTORY_CHARTS[first : first + across]:
            values = [value / unit for value in figure_values(detail.readings, name)]
            over: Row = [(f"   {heading_text}", "text"), (f"   {limit(gpu, detail, name)}", "muted")]
            charts.append([over, *_curve(values, span, wide, tall - 1, least)])
        rows += side_by_side(charts, wide, CHART_GAP, tall)
    return rows


def limit(gpu: GpuRow, detail: GpuDetail, name: str) -> str:
    """Return the limit of a figure as text; empty if unknown."""
    slows = detail.known("temperature_max") or detail.known("temperature_limit")
    return {
        "sm_clock": f"max {gpu.sm_clock_max:,}" if gpu.sm_clock_max else "",
        "power": f"limit {gpu.power_limit:.0f}" if gpu.power_limit else "",
        "temperature": f"slowdown at {slows:.0f}" if slows else "",
        "memory_used": f"of {gpu.memory_total / 2**30:.0f}" if gpu.memory_total else "",
    }[name]


def _curve(values: list[float], span: str, width: int, height: int, least: float) -> list[Row]:
    curve = _spread(values, width - CHART_GUTTER)
    layout = grid(curve, width - CHART_GUTTER)
    if layout is None or not any(math.isfinite(value) for value in values):
        return [[("   not reported by the driver", "muted")]]
    upright = partial(linear, whole=True)  # readings have no fractions of a unit
    buckets = fold(curve, layout)
    picture = line(buckets, layout, width - CHART_GUTTER, height - 1, "accent", "faint", least=least, upright=upright)
    foot: Row = [(" " * CHART_GUTTER + f"{span} ago", "muted")]
    newest = CHART_GUTTER + layout.columns - row_width(foot)
    return [*framed(picture.rows, picture.axis.labels, CHART_GUTTER), [*foot, (f"{'newest':>{newest}}", "muted")]]


def _spread(values: list[float], columns: int) -> Curve:
    """Return the values as a curve of at most `columns` buckets of nearly equal size; unknown values are left out."""
    groups = [known or [math.nan] for known in split_evenly(values, max(1, columns))]
    means = list(map(fmean, groups))
    return Curve(list(map(float, range(len(groups)))), means, list(map(min, groups)), list(map(max, groups)))


def most_critical(view: View) -> str | None:
    """Return the UUID of the GPU to select: one with an error, throttled now, throttled longest, else the first."""

    def severity(gpu: GpuRow) -> tuple[bool, bool, float]:
        readings = view.details.gpus.get(gpu.uuid, GpuDetail()).readings
        events = [event for event in view.details.throttle_events if event.uuid == gpu.uuid and event.code not in QUIET]
        now = bool(limits(gpu)) or any(event.end is None for event in events)
        return any(reading.xid for reading in readings), now, sum(event.seconds for event in events)

    first = max(view.report.gpus, key=lambda gpu: (severity(gpu), -gpu.index), default=None)
    return first.uuid if first is not None else None


@screen
class Gpus(ListBody):
    screen_name = "gpus"
    title = "GPUs"
    about = (
        "All GPUs; Enter opens one. `typical under load` is the median clock under load without throttling, measured in"
        " this run. Throttle reasons come from the driver: idle, application clocks and sync boost cost nothing, and a"
        " power cap is normal on a busy GPU.",
        "busy is the share of time with any kernel running: a GPU can be busy and slow. Processes are matched by the"
        " run's process tree; inside a container their owner may be unknown. More ranks than visible GPUs means GPUs on"
        " hosts without trainmon, or ranks that share a GPU.",
    )

    def data(self, view: View, options: ViewOptions) -> object:
        shown = view.report.gpus, view.details.gpus, view.details.throttle_events, view.report.outcome.state
        return shown, self.selected, self.opened, self._away

    def aside(self, view: View, options: ViewOptions) -> Row:
        gpus = view.report.gpus
        if self.opened:
            keys = f"{OPEN.shown} or {RESTORE.shown}"
            return [*self._legend(view, options), (keys, "accent"), (" back to all", "muted")]
        count = fewer_seen(view) or units.plural(len(gpus), "GPU", "GPUs")
        return [*self._legend(view, options), (count, "muted")] if gpus else []

    def _legend(self, view: View, options: ViewOptions) -> Row:
        """Return the legend of the bars: what they show, and the time that they cover."""
        width, height = self.size.width, self.size.height if self.opened else self._rows_per_gpu(view)
        if height <= MAX_BRIEF_ROWS:
            return [("━", "accent"), (" busy, ", "muted")]
        keys = self.keys(view, options)
        gpu, detail, _ = _of(keys[self.choice(keys)] if self.opened else keys[0], view)
        readings = detail.readings[-bars(gpu, detail, width, height) :]
        return [(f"bars: last {units.age(readings[-1].t - readings[0].t)}, ", "muted")] if len(readings) > 1 else []

    def _rows_per_gpu(self, view: View) -> int:
        """Return the rows for each GPU."""
        return max(1, (self.size.height - 1) // max(1, len(view.report.gpus)))

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        return [gpu.uuid for gpu in sorted(view.report.gpus, key=lambda gpu: gpu.index)]

    def choice(self, keys: list[object]) -> int:
        if self.selected is None and self._view is not None:  # only once: later the user's choice stays
            self.selected = most_critical(self._view)
        return super().choice(keys)

    def nothing(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        note = view.report.host.note or "no GPU found"
        rows = wrap([("  ", "text"), (printable(note[:400]), "muted")], width - 2)
        more = "`trainmon doctor` checks this machine."
        return [*rows, [], *wrap([("  ", "text"), (more, "muted")], width - 2)]

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        """Return the list, and charts of the selected GPU below it if there is room."""
        rows = super().body(view, options, width, height)
        keys = self.keys(view, options)
        if self.opened or not keys:
            return rows
        while rows and not rows[-1]:
            rows.pop()
        gpu, detail, _ = _of(keys[self.choice(keys)], view)
        return [*rows, *history(gpu, detail, width, height - len(rows))]

    def entry(self, key: object, view: View, options: ViewOptions, width: int, chosen: bool) -> list[Row]:
        rows_per_gpu = self._rows_per_gpu(view)
        rows = block(
            *_of(key, view), chosen, width, rows_per_gpu, names_width(view.report.gpus), self._models(view, width)
        )
        return [*rows, []] if len(rows) < rows_per_gpu else rows

    def _models(self, view: View, width: int) -> bool:
        """Return whether all titles have room for the model: it is shown in all of them or in none."""
        gpus = view.report.gpus
        least = {gpu.uuid: min(MIN_NAME_WIDTH, len(gpu.name or "")) for gpu in gpus}
        return all(model_room(gpu, _of(gpu.uuid, view)[2], width) >= least[gpu.uuid] for gpu in gpus)

    def opened_rows(self, key: object, view: View, options: ViewOptions, width: int) -> list[Row]:
        gpu, detail, held = _of(key, view)
        episodes = [event for event in view.details.throttle_events if event.uuid == gpu.uuid]
        shown = replace(gpu, throttle={}) if episodes else gpu  # listed below
        named = model_room(gpu, held, width) >= len(gpu.name or "")
        rows = block(shown, detail, held, False, width, 99, names_width([gpu]), named)
        rows[1:1] = [] if named else [[*label("model"), (printable(gpu.name or ""), "text")]]
        rows += [[]] if gpu.reasons else []
        for reason in gpu.reasons:
            meaning = BY_NAME[reason].meaning if reason in BY_NAME else "unknown to this version"
            rows += wrap([(f"   {fit(reason, 30)}", "warning"), (f"  {meaning}", "muted")], width - 1)
        rows += [[], [(" Throttle events", "text bold")]]
        for episode in reversed(episodes):
            over = "" if episode.end is not None else "ongoing: "
            over = over if not over or _shows(gpu, episode) else f"{until(detail, [episode.reason])}: "
            text = f"{over}{units.duration(episode.seconds)}  {episode.line()}"
            rows += wrap([("   ", "text"), (printable(text[:600]), "text")], width - 1, 5)
        rows += [] if episodes else [[("   none recorded", "muted")]]
        rows += [[], [(" Processes", "text bold")], *processes(detail, width)]
        return [*rows, *history(gpu, detail, width, self.size.height - 1 - len(rows))]


def _of(key: object, view: View) -> tuple[GpuRow, GpuDetail, Row]:
    """Return the GPU with this UUID, its readings and its active throttle reasons."""
    gpu = next(row for row in view.report.gpus if row.uuid == key)
    detail = view.details.gpus.get(gpu.uuid, GpuDetail())
    episodes = [event for event in view.details.throttle_events if event.uuid == gpu.uuid]
    return gpu, detail, throttle_now(gpu, detail, episodes, view.report.outcome.state == "running")


def _shows(gpu: GpuRow, episode: ThrottleEvent) -> bool:
    """Return whether the newest reading shows an open throttle event; True for reasons without a bit."""
    return episode.reason in gpu.reasons or episode.reason not in REASONS_WITH_BIT
