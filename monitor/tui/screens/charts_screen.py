"""The metrics screen: a small chart per metric, with search, log scale, smoothing and overlay."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from monitor import units
from monitor.model.report import MetricRow
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.tui.drawing.curve_columns import ends, grid, logarithms, percentiles_known, smoothed
from monitor.tui.drawing.event_axis import event_rows
from monitor.tui.drawing.rows import Row, fit, row_width, side_by_side, spread
from monitor.tui.drawing.time_cursor import column_of, footed
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.curve_panels import (
    CHART_GUTTER,
    MIN_MAX,
    P10_P90,
    band_legend,
    line_chart,
    point_at,
    pointed_value,
    step_below,
    steps_axis,
    summary,
)
from monitor.tui.panels.steps_panel import ZOOMED
from monitor.tui.screens.page import Finder, ListBody, screen, with_arrow

MIN_CHART_WIDTH, MIN_CHART_HEIGHT = 36, 7  # cells of a small chart: less shows no curve
MAX_CHARTS_ACROSS = 4
MIN_HEIGHT_WITH_EVENTS = 24  # rows of the screen from which the line of events has room below the small charts
SMOOTH = (0.0, 0.6, 0.9)  # none, a little, much
SMOOTH_WORDS = ("no smoothing", "light smoothing", "strong smoothing")
CHART_GAP = 2


@screen
class Charts(Finder, ListBody):
    screen_name = "charts"
    title = "Metrics"
    about = (
        "Each metric on its own scale: a line of means over a pale band, p10 to p90 of a column's steps (of a long run,"
        " of a sample), of few steps min to max. × marks non-finite values, ▴ and ▾ what is beyond the scale, such as a"
        " first value far off. A line breaks where values are missing for three typical intervals.",
        "/ finds by name, y switches to a log scale (without values of 0 and below), n smooths, d overlays the selected"
        " metric on all others, on its own scale. Enter enlarges a chart. The line below marks what happened when. The"
        " wheel zooms all charts around the pointer.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._logarithmic = False
        self._smooth = 0
        self._over: str | None = None
        self._across = 1

    def data(self, view: View, options: ViewOptions) -> object:
        own = self.selected, self.opened, self._logarithmic, self._smooth, self._over, self.search_text, self.typing
        happened = view.report.slow_steps, view.details.occurrences, view.details.throttle_events, view.details.spans
        return view.metrics, view.report.metrics, ends(view.step_seconds), own, options.cursor, options.zoom, happened

    def aside(self, view: View, options: ViewOptions) -> Row:
        shown, total = len(self.keys(view, options)), len({*view.metrics, *view.report.metrics})
        number = f"{shown:,} of {total:,}" if self.search_text else f"{total:,} metric{'s' * (total != 1)}"
        forms = ["logarithmic"] if self._logarithmic else []
        forms += [SMOOTH_WORDS[self._smooth]] if self._smooth else []
        forms += [ZOOMED.strip()] if options.zoom is not None else []
        room = self.size.width - len(self.title) - 6  # the scale matters more than the number of metrics
        band = [[*words, ("   ", "text")] for words in self._band_legend(view, options, shown)]
        row: Row = []
        for words, name in (([number, *forms], 24), (forms, 24), (forms, 12), (forms, 0)):
            row = [(", ".join(words), "muted")]
            if self._over and name:
                row += [("  with ", "muted"), (fit(self._over, name), "warning bold")]
            if row_width(row) <= room:
                break
        row = row if row[0][0] or len(row) > 1 else []
        return next(([*words, *row] for words in band if row_width([*words, *row]) <= room), row)

    def _band_legend(self, view: View, options: ViewOptions, charts: int) -> list[Row]:
        """Return what the bands of small charts are, if a column covers several steps: a large one tells it itself."""
        _, across = chart_grid(max(1, charts), max(1, min(MAX_CHARTS_ACROSS, self.size.width // MIN_CHART_WIDTH)))
        room = (self.size.width - CHART_GAP * across) // across - CHART_GUTTER
        layout = grid(view.step_seconds, room, zoom=options.zoom)
        if not charts or self.opened or self._smooth or layout is None or layout.steps == 1:
            return []
        curves = [view.metrics.get(str(name), Curve()) for name in self.keys(view, options)]
        known = {percentiles_known(curve, layout) for curve in curves if len(curve.x) > 1}
        return band_legend(
            name={(True,): P10_P90, (False, True): f"{P10_P90} or {MIN_MAX}"}.get(tuple(sorted(known)), MIN_MAX)
        )

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        names = list(dict.fromkeys([*view.metrics, *view.report.metrics]))
        return [name for name in names if self.matches(name)]

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        line = self.line(width)
        head = [line] if line else []
        return [*head, *self._charts(view, options, width, height - len(head))]

    def _charts(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        names = self.keys(view, options)
        self.empty = not names
        if not names:
            if view.metrics:
                return [[("  no matching metric", "muted")]]
            return [
                [("  no metrics logged yet", "muted")],
                [("  ", "text"), ("trainhooks.log(loss=loss)", "accent"), (" logs one from any loop", "muted")],
            ][:height]
        at = self.choice(names)
        if self.opened:
            return self._one(str(names[at]), view, options, width, height, True, height > MIN_CHART_HEIGHT + 1)
        events = self._events(view, options, width, height)
        placed = small_charts(len(names), at, width, height - len(events))
        self._across = placed.across
        rows: list[Row] = []
        for line, end in enumerate(placed.ends):
            tall = end - len(rows)
            part = names[placed.first + line * placed.across :][: placed.across]
            look = placed.wide, tall
            charts = [self._one(str(name), view, options, *look, name == names[at], placed.roomy) for name in part]
            rows += side_by_side(charts, placed.wide, CHART_GAP, tall)
        if placed.first > 0:
            rows[0] = with_arrow(rows[0], "↑", width)
        if placed.first + len(placed.ends) * placed.across < len(names):
            rows[-1] = with_arrow(rows[-1], "↓", width)
        return [*rows, *events]

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that selects or opens the chart whose title was clicked, or moves the time cursor in it."""
        names = self.keys(view, options)
        found = self._chart_at(names, view, options, x, y)
        if found is None:
            return ""
        at, _, in_title = found
        return self.select_or_open(names, names[at]) if in_title else point_at(self.step_at(view, options, x, y))

    def step_at(self, view: View, options: ViewOptions, x: int, y: int) -> int | None:
        names = self.keys(view, options)
        found = self._chart_at(names, view, options, x, y)
        if found is None or found[2]:
            return None
        at, beside, _ = found
        curve = view.metrics.get(str(names[at]), Curve())
        return step_below(curve, beside.wide, beside.x, view, options)

    def _chart_at(
        self, names: list[object], view: View, options: ViewOptions, x: int, y: int
    ) -> tuple[int, _InChart, bool] | None:
        """Return the index of the chart at a cell, the place in it, and whether that is in its title."""
        width = self.size.width
        head = 1 + bool(self.line(width))
        height, y = self.size.height - head, y - head
        height -= 0 if self.opened else len(self._events(view, options, width, height))
        if not names or not 0 <= y < height:
            return None
        at = self.choice(names)
        top, roomy = 0, height > MIN_CHART_HEIGHT + 1
        if not self.opened:
            placed = small_charts(len(names), at, width, height)
            line = bisect_right(placed.ends, y)
            beside, x = divmod(x, placed.wide + CHART_GAP)
            at = placed.first + line * placed.across + beside
            if line == len(placed.ends) or beside >= placed.across or at >= len(names):
                return None
            top, roomy, width = [0, *placed.ends][line], placed.roomy, placed.wide
        return at, _InChart(width, x), y - top <= roomy

    def _events(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        """Return what happened on one line below all small charts, with its own steps and signs; empty if nothing."""
        if height < MIN_HEIGHT_WITH_EVENTS:
            return []
        room = width - CHART_GUTTER
        layout = grid(view.step_seconds, room, zoom=options.zoom)
        rows = event_rows(view, layout, CHART_GUTTER, room) if layout is not None else []
        if layout is None or not rows:
            return []
        at = column_of(layout, options.cursor, room)
        foot = None if at is None else CHART_GUTTER + at
        return [[], rows[0], footed(steps_axis(layout, CHART_GUTTER, room), foot), rows[1]]

    def _one(
        self, name: str, view: View, options: ViewOptions, width: int, height: int, chosen: bool, roomy: bool
    ) -> list[Row]:
        row = view.report.metrics.get(name, MetricRow())
        last: Row = [(fit(units.number(row.last), 14), "bad bold" if isinstance(row.last, str) else "text bold")]
        plain = view.metrics.get(name, Curve())
        pointed = None if options.cursor is None else pointed_value(plain, options.cursor)
        last = last if pointed is None else pointed
        room = width - 3 - (0 if roomy else row_width(last) + 1)
        title: Row = [("▶ " if chosen else "  ", "accent bold"), (fit(name, room), "text bold")]
        rows = [spread(title, [] if roomy else last, width)]
        if roomy:
            rows.append([("  ", "text"), *summary(row, width - 2, pointed)])
        over = view.metrics.get(self._over) if self._over not in (None, name) else None
        curve = self._formed(plain)
        other = self._formed(over) if over is not None else None
        room = height - len(rows) - roomy
        form = self._logarithmic, options.cursor, view.step_seconds, self.opened, options.zoom
        return [*rows, *line_chart(curve, width, room, other, *form, view if self.opened else None)]

    def _formed(self, curve: Curve) -> Curve:
        if self._smooth:
            curve = smoothed(curve, SMOOTH[self._smooth])
        return logarithms(curve) if self._logarithmic else curve

    def do_move(self, rows: int) -> None:
        if self._view is None or self._options is None:
            return
        names = self.keys(self._view, self._options)
        if names:
            self.selected = names[max(0, min(len(names) - 1, self.choice(names) + rows))]

    def do_beside(self, columns: int) -> None:
        """Select the neighboring small chart; in a large one move the time cursor."""
        if self.opened:
            self.app.call_later(self.app.run_action, f"cursor({columns})")
        else:
            self.do_move(columns)

    def do_move_page(self, pages: int) -> None:
        self.do_move(pages * self._across)

    def do_logarithm(self) -> None:
        self._logarithmic = not self._logarithmic

    def do_smooth(self) -> None:
        self._smooth = (self._smooth + 1) % len(SMOOTH)

    def do_overlay(self) -> None:
        if self._view is None or self._options is None:
            return
        names = self.keys(self._view, self._options)
        chosen = str(names[self.choice(names)]) if names else None
        self._over = None if self._over == chosen else chosen

    def scroll_rows(self, rows: int) -> None:
        self.do_move(rows)
        self.draw_again(force=True)


@dataclass(frozen=True)
class _InChart:
    """A place in a chart."""

    wide: int  # cells of the chart
    x: int


@dataclass(frozen=True)
class SmallCharts:
    """Where the visible ones of many small charts are."""

    first: int  # the first visible chart
    across: int  # charts in a line
    wide: int  # cells of each
    ends: list[int]  # row below each line of charts
    roomy: bool  # whether each has a row of figures below its title


def small_charts(number: int, at: int, width: int, height: int) -> SmallCharts:
    """Place `number` small charts, so that the selected one (`at`) is visible."""
    lines, across = chart_grid(number, max(1, min(MAX_CHARTS_ACROSS, width // MIN_CHART_WIDTH)))
    shown = max(1, min(lines, height // MIN_CHART_HEIGHT))
    first = min(max(0, at // across - shown // 2), lines - shown)
    beyond = CHART_GAP if shown < lines else 0  # cells of the scroll arrows
    wide = (width - beyond - CHART_GAP * (across - 1)) // across
    ends = [(line + 1) * height // shown for line in range(shown)]
    return SmallCharts(first * across, across, wide, ends, height // shown > MIN_CHART_HEIGHT + 1)


def chart_grid(number: int, most: int) -> tuple[int, int]:
    """Return the rows, and the charts in each (at most `most`), filled as evenly as possible."""
    lines = -(-number // most)
    return lines, -(-number // lines)
