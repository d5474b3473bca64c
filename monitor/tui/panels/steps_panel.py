"""The steps panel: step time over the run, stacked by phase, with a mark above every slow step."""

from __future__ import annotations

import math
from collections.abc import Collection

from monitor import units
from monitor.model.view import View
from monitor.palettes import OTHER
from monitor.tui.drawing.chart import column_axis, label_column
from monitor.tui.drawing.clock_lanes import Lane, lane, with_clock
from monitor.tui.drawing.curve_columns import Grid, across, fold_means, grid, top_limit
from monitor.tui.drawing.rows import Row, Span, fit, flow, printable, row_width, separated, text_width, wrap
from monitor.tui.drawing.step_marks import BOTH, CHECKPOINT, EVAL, MARK_WORDS, SLOW, marked, slow_by_throttle
from monitor.tui.drawing.time_cursor import column_of, crossed, footed, value_at
from monitor.tui.drawing.timeline import Layer, stacked
from monitor.tui.panels.base import Panel, ViewOptions, on_board
from monitor.tui.panels.curve_panels import ABOVE, framed, steps_axis
from monitor.tui.panels.ranks_panel import of_rank

LEGEND_ORDER = (SLOW, CHECKPOINT, EVAL, BOTH)  # of the signs in the legend
STEPS_GUTTER = 8  # cells before the columns
ZOOMED = "zoomed  "
TALL_PANEL_HEIGHT = 10  # rows of a panel from which on the legend may take two rows


def phase_layers(shown: Lane, layout: Grid) -> dict[str, list[float]]:
    """Return the mean seconds per step of each phase and of the rest, one value per bucket of the grid."""
    layers: dict[str, list[float]] = {}
    for name, curve in shown.phase_seconds.items():
        layers[name] = fold_means(curve, layout)
    if OTHER not in layers:
        rest = []
        for index, total in enumerate(fold_means(shown.step_seconds, layout)):
            left = total - sum(values[index] for values in layers.values())
            rest.append(left if left > 0.005 * total else 0.0)
        layers[OTHER] = rest
    else:
        layers[OTHER] = layers.pop(OTHER)  # last, whatever order it came in
    return layers


def _marks(signs: dict[int, Span], layout: Grid, totals: list[float], top: float, width: int) -> Row:
    """Return the row of signs above their steps; `▴` where a column is only cut off.

    The first column tells its value, if there is room: it is often cut off, since the first step starts up everything.
    """
    cut_off = {index for index, total in enumerate(totals) if total > top}
    row: Row = []
    at = 0
    for index in sorted(signs.keys() | cut_off):
        middle = layout.column(index) - layout.bars
        if at <= middle < width:
            row += [(" " * (middle - at), "text"), signs.get(index, (ABOVE, "muted"))]
            at = middle + 1
            if index == 0 and index in cut_off:
                words = units.duration(totals[index])
                beside = min((layout.column(other) for other in signs.keys() | cut_off if other), default=width)
                if at + len(words) + layout.bars < beside:
                    row.append((words, "muted"))
                    at += len(words)
    return [*row, (" " * (width - at), "text")]


def pointed_phases(shown: Lane, cursor: int) -> dict[str, str]:
    """Return the duration of each phase at the time cursor, as text."""
    durations = {}
    for name, curve in shown.phase_seconds.items():
        moment, step = value_at(curve, cursor), value_at(shown.step_seconds, cursor)
        # A phase does not occur in every step: an older value is not this step's.
        if moment is not None and step is not None and moment.last >= step.first and math.isfinite(moment.value):
            durations[name] = units.duration(moment.value)
    return durations


def legend(
    options: ViewOptions, layers: dict[str, list[float]], signs: Collection[Span], width: int, rows: int,
    least: float = 0.0,
    times: dict[str, str] | None = None,
) -> list[Row]:  # fmt: skip
    """Return the legend of colors and signs; with the cursor, the time of each phase instead of the signs.

    Args:
        least: the seconds that are visible in the chart: a phase that is always shorter is left out first.
        times: of each phase at the time cursor; None without one.
    """
    seen = [name for name, values in layers.items() if any(values)]
    by_size = sorted(seen, key=lambda name: (max(layers[name]) < least, -sum(layers[name])))
    parts: dict[str, Row] = {name: [("■ ", options.phases[name]), (fit(name, 24), "muted")] for name in seen}
    if times is not None:
        parts = {name: [*part, (f" {times.get(name, units.UNKNOWN)}", "text")] for name, part in parts.items()}
        signs = ()

    def kept(most: int) -> list[Row]:
        return [part for name, part in parts.items() if name in by_size[:most]]  # in the order of the step

    if rows == 1:  # signs first: the phases panel shows the colors, too, but no signs
        return [separated([*_brief(signs, width), *kept(3)], width, ("  ", "text"))]
    for most in range(len(parts), 0, -1):  # the signs come last, and all of them are shown
        for marks in _wordings(signs):
            if len(lines := flow([*kept(most), *marks], width, limit=3)) <= 2:
                return lines
    return flow([*_brief(signs, width), *parts.values()], width, limit=2)


def _wordings(signs: Collection[Span]) -> list[list[Row]]:
    """Return wordings of what the signs mean, the shortest last."""
    both = {BOTH: "both"} if {CHECKPOINT, EVAL} <= set(signs) else {}
    short = {**MARK_WORDS, EVAL: "eval", **both}
    wordings = [MARK_WORDS, short, {**short, SLOW: "slow", CHECKPOINT: "saved"}]
    return [[[sign, (f" {words[sign]}", "muted")] for sign in LEGEND_ORDER if sign in signs] for words in wordings]


def _brief(signs: Collection[Span], width: int) -> list[Row]:
    """Return what the signs mean in the longest wording that fits into a row."""
    *longer, shortest = _wordings(signs)[1:]
    return next((row for row in longer if sum(row_width(part) + 2 for part in row) - 2 <= width), shortest)


def no_steps(view: View, width: int, height: int) -> list[Row]:
    """Return why there is no step to show, as far as known, and what to do."""
    found = next((finding for finding in view.report.findings if finding.code == "nothing-reports"), None)
    if found is None:
        return [[("  no step finished yet", "muted")]]
    rows: list[Row] = []
    for line in found.evidence:
        rows += wrap([("  · ", "accent"), (printable(line[:800]), "text")], width - 1, 4)
    if found.advice:
        rows += wrap([("  → ", "accent"), (printable(found.advice[:800]), "text")], width - 1, 4)
    if len(rows) > height:
        rows[max(0, height - 1) :] = [[("  more: screen ", "muted"), ("why", "accent")]]
    return rows


def seconds_axis(highest: float, height: int) -> tuple[float, list[str]]:
    """Return the value of the top edge in seconds, and a label per row in one unit, for the row's lower edge."""
    number, unit = units.axis_seconds(highest).split(" ")
    top, values = column_axis(float(number), height)
    labels = [f"{value:.6g} {unit}" if value else "0" for value in values.values()]
    return max(highest, top * (highest / float(number))), list(label_column(labels, list(values), height))


def chart(view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
    layout = steps_grid(view, options, width)
    if layout is None or height < 3:
        return no_steps(view, width, height)
    bars, below = bars_and_legend(view, options, layout, width, height)
    return [*bars, *below]


def steps_grid(view: View, options: ViewOptions, width: int) -> Grid | None:
    return grid(lane(view, options.host).step_seconds, width - STEPS_GUTTER, zoom=options.zoom)


def bars_and_legend(
    view: View, options: ViewOptions, layout: Grid, width: int, height: int
) -> tuple[list[Row], list[Row]]:
    """Return the bars with the signs above them, and the axis with the legend below."""
    shown = lane(view, options.host)
    room = width - STEPS_GUTTER
    layers = phase_layers(shown, layout)
    totals = [sum(column) for column in zip(*layers.values(), strict=True)]
    highest = min(top_limit(totals), max(totals, default=0.0) or 1.0)
    signs = marked(view, layout)
    times = pointed_phases(shown, options.cursor) if options.cursor is not None else None
    lines = 2 if height >= TALL_PANEL_HEIGHT else 1
    half_a_cell = highest / (2 * height)
    words = legend(options, layers, signs.values(), room, lines, half_a_cell, times) if height >= 6 else []
    held = slow_by_throttle(view, layout, room) if height >= 8 else []
    plot_height = max(1, height - 2 - len(words) - bool(held))
    top, labels = seconds_axis(highest, plot_height)
    bars = [Layer(options.phases[name], across(values, layout, apart=True)) for name, values in layers.items()]
    above = [*([held] if held else []), _marks(signs, layout, totals, top, room)]
    column = column_of(layout, options.cursor, room)
    picture = crossed([*above, *stacked(bars, room, plot_height, top)], column)
    rows = framed(picture, [*[""] * len(above), *labels], STEPS_GUTTER, at_foot=True)
    foot = None if column is None else STEPS_GUTTER + column
    between = [] if words else [separated(row, room, ("  ", "text")) for row in _wordings(signs.values())[1:]]
    axis = footed(steps_axis(layout, STEPS_GUTTER, room, between), foot)
    return rows, [axis, *([(" " * STEPS_GUTTER, "text"), *row] for row in words)]


@on_board("steps", 1, "Step time by phase", wide=(0, 3), middle=(0, 1), narrow=1)
class Steps(Panel):
    short = "Step time"

    def data(self, view: View, options: ViewOptions) -> object:
        slow = [slow.step for slow in view.report.slow_steps]
        beside = view.details.spans, view.details.throttle_events, options.cursor, options.zoom
        shown = lane(view, options.host)
        curves = shown.clock, shown.step_seconds, shown.phase_seconds
        return curves, slow, beside, [] if shown.step_seconds.x else view.report.findings

    def heading(self, view: View, options: ViewOptions) -> str:
        self.short = with_clock(Steps.short, view.report, options.host)
        return of_rank(with_clock("Step time by phase", view.report, options.host), view.report)

    def aside(self, view: View, options: ViewOptions) -> Row:
        row = self._aside(view, options)
        used = text_width(self.short) + row_width(row) + text_width(ZOOMED) + 9
        return [(ZOOMED, "accent"), *row] if options.zoom is not None and used <= self.size.width else row

    def _aside(self, view: View, options: ViewOptions) -> Row:
        curve = lane(view, options.host).step_seconds
        moment = value_at(curve, options.cursor) if options.cursor is not None else None
        if moment is not None:
            return [(f"{moment.name} ", "accent"), (units.duration(moment.value), "text")]
        last = next((value for value in reversed(curve.mean) if math.isfinite(value)), None)
        newest: Row = (
            [("last ", "muted"), (units.duration(last), "text")] if last is not None and curve.width == 1 else []
        )
        layout = steps_grid(view, options, self.size.width)
        if layout is None or layout.steps == 1:
            return newest
        number = f"{layout.steps:,}"
        wordings = (f"bar = mean of {number} steps", f"mean of {number} steps", f"mean of {number}")
        gap: Row = [("  ", "text")] if newest else []
        asides: list[Row] = [[(words, "muted"), *gap, *newest] for words in wordings]
        asides.append([(wordings[1], "muted")])
        for title in (self.heading(view, options), self.short):
            room = self.size.width - text_width(title) - 9  # what the rule and the panel's number leave
            for aside in asides:
                if row_width(aside) <= room:
                    return aside
        return asides[-1]

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        return chart(view, options, width, height)

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that opens the step of the bar, or the slowest of its steps."""
        steps = self._steps_at(view, options, x, y)
        return f"open('steps', {(steps[0], len(steps))})" if steps else ""

    def step_at(self, view: View, options: ViewOptions, x: int, y: int) -> int | None:
        steps = self._steps_at(view, options, x, y)
        return steps[0] if steps else None

    def _steps_at(self, view: View, options: ViewOptions, x: int, y: int) -> range:
        """Return the steps of the bar at a cell; empty beside the bars."""
        width, height = self.size.width, self.size.height - 1
        layout = steps_grid(view, options, width)
        if layout is None or height < 3 or x < STEPS_GUTTER:
            return range(0)
        bars, _ = bars_and_legend(view, options, layout, width, height)
        return layout.steps_at(x - STEPS_GUTTER) if 0 < y <= len(bars) else range(0)
