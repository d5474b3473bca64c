"""Line charts with labels and axes, and the panels that show one curve: a metric, tokens per second."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from textual.timer import Timer

from monitor import units
from monitor.model.report import MetricRow
from monitor.model.steps.pace import SINCE, recent_over
from monitor.model.steps.series import Curve, metric_place
from monitor.model.view import View
from monitor.tui.drawing.chart import MAX_LABEL_WIDTH, linear
from monitor.tui.drawing.chart import logarithmic as log_axis
from monitor.tui.drawing.curve_columns import Bucket, Grid, Zoom, ends, fold, grid, with_percentiles
from monitor.tui.drawing.event_axis import MIN_EVENTS_HEIGHT, event_rows
from monitor.tui.drawing.line_drawing import Picture, line
from monitor.tui.drawing.rows import Row, column, fit, merged, row_width, separated, text_width
from monitor.tui.drawing.time_cursor import column_of, crossed, footed, value_at
from monitor.tui.panels.base import Panel, ViewOptions, on_board
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.ranks_panel import of_rank
from trainhooks.protocol.vocabulary import HIGHER_IS_BETTER

CHART_GUTTER = MAX_LABEL_WIDTH + 2  # cells before a line chart
MIN_MAX, P10_P90 = "min-max", "p10-p90"  # what the band behind a line is
TICK_GAP = 2  # cells at least between two numbers below a chart
ABOVE, BELOW = "▴", "▾"  # values beyond the scale; `↑` and `↓` mean that more can be scrolled to


def framed(picture: Sequence[Row], labels: Sequence[str], gutter: int, at_foot: bool = False) -> list[Row]:
    """Return every row of the chart after its label and a thin vertical line.

    Args:
        at_foot: a label is the value at its row's lower edge (columns), not at its middle (a line).
    """
    tick = "▁│" if at_foot else " ┤"
    rows = []
    for row, label in zip(picture, labels, strict=True):
        rows.append([(column(label, gutter - 2, right=True), "muted"), (tick if label else " │", "rule"), *row])
    return rows


def _marks(columns: frozenset[int], sign: str, tone: str, cells: dict[int, tuple[str, str]]) -> None:
    for at in columns:
        cells[at] = (sign, tone)


def marks(picture: Picture, width: int) -> Row:
    """Return a row of `×` where the value is not finite, `▴` and `▾` where it is beyond the scale."""
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


_SIGNS = {"×": "not finite", ABOVE: "above scale", BELOW: "below scale"}


def with_meaning(signs: Row, width: int, beyond: str = "") -> Row:
    """Return the row of signs with their meaning after the last one, else before the first one, if there is room.

    Args:
        beyond: the value furthest beyond the scale.
    """
    kinds = {text for text, _ in signs} & _SIGNS.keys()
    words = _SIGNS[min(kinds)] if len(kinds) == 1 else "off scale"
    words += " or not finite" * (len(kinds) > 1 and "×" in kinds)
    single = sum(text in (ABOVE, BELOW) for text, _ in signs) == 1
    ways = [f"{beyond} {words}" if single else f"{words}, up to {beyond}"] if beyond else []
    before = row_width(signs[:1]) if not signs[0][0].strip() else 0
    for way in (*ways, words):
        if row_width(signs) + len(way) < width:
            return [*signs, (f" {way}", "muted")]
        if len(way) < before:
            return [(f"{way:>{before - 1}} ", "muted"), *signs[1:]]
    return signs


def band_legend(steps: int = 0, name: str = MIN_MAX, sampled: bool = False) -> list[Row]:
    """Return wordings of what the band behind a line means, the shortest last."""
    of_steps = [f"{name} of {steps:,} steps"] if steps > 1 else []
    if sampled:
        of_steps = [f"{name} of a sample of {steps:,} steps", f"{name} of a sample"]
    last = ["low to high"] if name == MIN_MAX else []
    return [[("⡇", "faint"), (f" {words}", "muted")] for words in (*of_steps, name, *last)]


def steps_axis(layout: Grid, gutter: int, width: int, between: Sequence[Row] = ()) -> Row:
    """Return `step 1 ... 100 ... 214`; the last number ends below its column, those between are centered there.

    Args:
        between: rows for the space between first and last in place of other steps; the first that fits is used.
    """
    first = f"step {max(1, layout.start):,}"
    if layout.last <= max(1, layout.start):
        return [(" " * gutter + first, "muted")]
    final = f"{layout.last:,}"
    room = max(min(width, layout.columns) - text_width(first) - text_width(final), 2)
    words = next((row for row in between if row and row_width(row) + 4 <= room), [])
    if words:
        left = (room - row_width(words)) // 2
        right = " " * (room - row_width(words) - left)
        return merged([(" " * gutter + first + " " * left, "muted"), *words, (right + final, "muted")])
    line, end = first, len(first) + room
    for step, at in layout.ticks(width):
        label = f"{step:,}"
        begin = at - len(label) // 2
        if len(line) + TICK_GAP <= begin and begin + len(label) + TICK_GAP <= end:
            line = line.ljust(begin) + label
    return [(" " * gutter + line.ljust(end) + final, "muted")]


def _drawn(
    buckets: Sequence[Bucket | None], over: Sequence[Bucket | None], layout: Grid, width: int, height: int,
    logarithmic: bool, opens: bool,
) -> tuple[Picture, Row]:  # fmt: skip
    """Return a line chart and the row of signs below it; with signs, the chart is one row lower."""

    def drawn(rows: int) -> Picture:
        upright = log_axis if logarithmic else linear
        size = width, rows
        return line(buckets, layout, *size, "accent", "faint", over, "warning", upright=upright, opens=opens)

    picture = drawn(height)
    signs = marks(picture, width)
    if signs and height > 1:
        picture = drawn(height - 1)
    if not signs:
        return picture, []
    beyond = picture.beyond[0] if picture.beyond else math.nan
    if logarithmic:
        beyond = 10.0**beyond if beyond < 300 else math.nan
    return picture, with_meaning(signs, width, units.number(beyond) if math.isfinite(beyond) else "")


def folded(curve: Curve, layout: Grid) -> tuple[list[Bucket | None], str]:
    """Return the buckets of a curve and what their band is; empty if none has one."""
    buckets = fold(curve, layout)
    known = with_percentiles(buckets, curve, layout)
    if known is not None:
        buckets = known
    elif curve.width > 1 and curve.low is curve.mean:  # of a bucket's steps only the mean is known
        buckets = [bucket and replace(bucket, low=bucket.mean, high=bucket.mean) for bucket in buckets]
    banded = any(bucket is not None and bucket.low < bucket.high for bucket in buckets)
    return buckets, (MIN_MAX if known is None else P10_P90) if banded else ""


def step_below(curve: Curve, width: int, x: int, view: View, options: ViewOptions) -> int | None:
    """Return the first step of column `x` of a line chart of `width`; None beside it."""
    layout = grid(curve, width - CHART_GUTTER, view.step_seconds, options.zoom)
    steps = layout.steps_at(x - CHART_GUTTER) if layout is not None and x >= CHART_GUTTER else range(0)
    return steps[0] if steps else None


def point_at(step: int | None) -> str:
    """Return the action that places the time cursor at the step that was clicked; empty without one."""
    return "" if step is None else f"point({step})"


def line_chart(
    curve: Curve, width: int, height: int, over: Curve | None = None, logarithmic: bool = False,
    pointed: int | None = None, beside: Curve | None = None, explained: bool = True, zoom: Zoom | None = None,
    events: View | None = None,
) -> list[Row]:  # fmt: skip
    """Return a curve as a line with its band, its scale and the steps below it.

    The band is p10 to p90 of the steps of a column where these are known, else their least and largest.

    Args:
        over: a second curve, drawn on its own scale.
        pointed: the step that the time cursor points at.
        beside: a curve of the same steps in a neighboring chart, to share its columns.
        logarithmic: the curve holds decimal logarithms; its limits are labeled with what they stand for.
        explained: the meaning of the band is below the chart, if there is room.
        zoom: the steps to show; None: all.
        events: of the run whose events are marked below the chart; None: no marks.
    """
    if height < 3 or not curve.x:
        return [[("  no data yet", "muted")]]
    gutter = CHART_GUTTER
    room = width - gutter
    layout = grid(curve, room, beside, zoom)
    if layout is None:
        return []
    buckets, band = folded(curve, layout)
    second = fold(over, layout) if over is not None else []
    sampled = band == P10_P90 and curve.sample is not None and curve.sample.halvings > 0
    words = band_legend(layout.steps, band, sampled) if explained and band else []
    has_line = events is not None and height >= MIN_EVENTS_HEIGHT
    happened = event_rows(events, layout, gutter, room, words) if events is not None and has_line else []
    used = 1 + len(happened)
    begin = min(curve.x[0], beside.x[0]) if beside is not None and beside.x else curve.x[0]
    opens = layout.start <= begin == curve.x[0]
    picture, signs = _drawn(buckets, second, layout, room, height - used, logarithmic, opens)
    column = column_of(layout, pointed, room)
    rows = framed(crossed(picture.rows, column), picture.axis.labels, gutter)
    if signs:
        rows.append([(" " * gutter, "text"), *signs])
    foot = None if column is None else gutter + column
    rows += happened[:1]
    rows.append(footed(steps_axis(layout, gutter, room, [] if happened else words), foot))
    return [*rows, *happened[1:]]


# The curves are the most expensive part of the board to draw, and one more step moves them by less than a column.
CURVE_SECONDS = 2.0  # between two redraws of a curve


class CurvePanel(Panel):
    """A panel of figures and a curve: new steps update the figures at once and the curve every `CURVE_SECONDS`.

    Any other change redraws the curve at once.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._curve: list[Row] = []
        self._curve_basis: tuple[object, ...] | None = None
        self._curve_at = 0.0
        self._due: Timer | None = None

    def curve(self, name: str, curve: Curve, width: int, height: int, options: ViewOptions, steps: Curve) -> list[Row]:
        """Return the chart of the curve `name` over the run's `steps`; the last one drawn if that is recent."""
        basis = (name, width, height, options.cursor, options.zoom)
        live = self.is_attached and not options.replay and not options.paused
        if live and basis == self._curve_basis and time.monotonic() - self._curve_at < CURVE_SECONDS:
            if self._due is None:  # so that the last steps of a run are drawn
                self._due = self.set_timer(CURVE_SECONDS, lambda: self.draw_again(force=True))
            return self._curve
        if self._due is not None:
            self._due.stop()
            self._due = None
        self._curve_basis, self._curve_at = basis, time.monotonic()
        place = options.cursor, steps, True, options.zoom
        self._curve = line_chart(curve, width, height, None, False, *place)
        return self._curve

    def shown_curve(self, view: View, options: ViewOptions) -> Curve:
        """Return the curve that the panel shows."""
        raise NotImplementedError

    def step_at(self, view: View, options: ViewOptions, x: int, y: int) -> int | None:
        """Return the step at a cell below the title and the figures."""
        head = 1 if self.size.height < LOW_PANEL_HEIGHT else 2
        return step_below(self.shown_curve(view, options), self.size.width, x, view, options) if y >= head else None

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        return point_at(self.step_at(view, options, x, y))


LOW_PANEL_HEIGHT = 7  # rows of a panel below which the chart takes the row of the figures


def default_metric(names: Iterable[str]) -> str | None:
    """Return the metric to show first: a reward, else a loss, else any other, the hooks' own last; None if empty."""
    return min(names, key=metric_place, default=None)


def chosen(view: View, options: ViewOptions) -> str | None:
    """Return the metric to show: the selected one while it exists, else the default; None if there is none."""
    names = list(dict.fromkeys([*view.metrics, *view.report.metrics]))
    return options.metric if options.metric in names else default_metric(names)


def _value(value: float | str | None) -> Row:
    return [(fit(units.number(value), 14), "bad bold" if isinstance(value, str) else "text")]


def pointed_value(curve: Curve, cursor: int) -> Row:
    """Return `step 97 0.4457`: the curve's value at the time cursor."""
    moment = value_at(curve, cursor)
    if moment is None:
        return [(f"step {cursor:,} ", "accent"), (units.UNKNOWN, "text")]
    value = moment.value if math.isfinite(moment.value) else "not finite"
    return [(f"{moment.name} ", "accent"), *_value(value)]


def higher_is_better(name: str) -> bool:
    return not set(HIGHER_IS_BETTER).isdisjoint(re.findall(r"[a-z0-9]+", name.lower()))


def summary(row: MetricRow, width: int, pointed: Row | None = None, name: str = "") -> Row:
    """Return the figures of a metric, after the value at the time cursor if given (`pointed`).

    Args:
        name: of the metric; it decides whether the maximum matters more than the minimum.
    """
    last: Row = [("last ", "muted"), *_value(row.last)]
    if row.count == 1:
        return separated([pointed or last, [("only value", "muted")]], width, ("  ", "text"))
    parts: list[Row] = [pointed or last]
    if row.nonfinite:
        parts.append([(f"{units.plural(row.nonfinite, 'value', 'values')} not finite", "bad bold")])
    bounds = [[(f"{label} ", "muted"), *_value(value)] for label, value in (("min", row.min), ("max", row.max))]
    all_fit = sum(map(row_width, [*parts, *bounds])) + 2 * len(parts) + 2 <= width
    if not all_fit and (higher_is_better(name) or _value(row.min) == _value(row.last)):
        bounds.reverse()  # the more informative one is placed first
    return separated([*parts, *bounds], width, ("  ", "text"))


@on_board("metric", 3, "A metric", wide=(1, 3), middle=(1, 1), narrow=3)
class Metric(CurvePanel):
    def data(self, view: View, options: ViewOptions) -> object:
        name = chosen(view, options)
        beside = len(view.metrics), ends(view.step_seconds), options.cursor, options.zoom
        return name and (name, view.metrics.get(name), view.report.metrics.get(name)), beside

    def heading(self, view: View, options: ViewOptions) -> str:
        name = chosen(view, options)
        return "Metrics" if name is None else fit(name, 60)

    def aside(self, view: View, options: ViewOptions) -> Row:
        others = len(view.metrics) - 1
        name = chosen(view, options)
        if name is not None and self.size.height < LOW_PANEL_HEIGHT:
            if options.cursor is not None:
                return pointed_value(view.metrics.get(name, Curve()), options.cursor)
            return [("last ", "muted"), *_value(view.report.metrics.get(name, MetricRow()).last)]
        return [(options.key("next_metric"), "accent"), (f" {others} more", "muted")] if others > 0 else []

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        name = chosen(view, options)
        if name is None:
            return [[("  no metrics logged yet", "muted")]]
        row, curve = view.report.metrics.get(name, MetricRow()), view.metrics.get(name, Curve())
        pointed = None if options.cursor is None else pointed_value(curve, options.cursor)
        head: list[Row] = (
            [] if height + 1 < LOW_PANEL_HEIGHT else [[(" ", "text"), *summary(row, width - 1, pointed, name)]]
        )
        return [*head, *self.curve(name, curve, width, height - len(head), options, view.step_seconds)]

    def shown_curve(self, view: View, options: ViewOptions) -> Curve:
        return view.metrics.get(chosen(view, options) or "", Curve())


def pointed_rate(curve: Curve, cursor: int) -> Row:
    """Return the tokens per second at the time cursor."""
    moment = value_at(curve, cursor)
    if moment is None:
        return [(f"step {cursor:,} ", "accent"), (units.UNKNOWN, "text")]
    return [(f"{moment.name} ", "accent"), (units.rate(moment.value, "tok/s"), "text")]


# The chart is of the steps; the run's rate has evaluations, checkpoints and its first step in it. Less is not seen.
MIN_ABOVE = 1.05


def _typical_rate(curve: Curve) -> float:
    return median([rate for rate in curve.mean if math.isfinite(rate)] or [0.0])


@on_board("tokens", 4, "Tokens per second", wide=(1, 3), middle=(3, 1), narrow=6)
class Tokens(CurvePanel):
    def data(self, view: View, options: ViewOptions) -> object:
        place = options.cursor, options.zoom
        return view.tokens_per_second, view.report.throughput, view.report.outcome.state, shown_rank(view.report), place

    def heading(self, view: View, options: ViewOptions) -> str:
        return of_rank("Tokens per second", view.report)

    def has_place(self, view: View, options: ViewOptions) -> bool:
        return bool(view.tokens_per_second.x) or not view.report.progress.steps_done

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        curve = view.tokens_per_second
        if not curve.x:
            return [[("  no token counts", "muted")]]
        # The header's figures: with the curve's last point there would be two rates of one run on the screen.
        whole = view.report.throughput
        recent = whole.recent.tokens_per_second if view.report.outcome.state == "running" else None
        parts: list[Row] = [] if options.cursor is None else [pointed_rate(curve, options.cursor)]
        if recent is not None and options.cursor is None:
            parts.append([(f"{recent_over(whole) or 'lately'} ", "muted"), (units.rate(recent, "tok/s"), "text")])
        parts.append([(f"{SINCE} ", "muted"), (units.rate(whole.tokens_per_second, "tok/s"), "text")])
        if (drawn := _typical_rate(curve)) > MIN_ABOVE * (whole.tokens_per_second or math.inf):
            parts.append([("in steps, as drawn ", "muted"), (units.rate(drawn, "tok/s"), "text")])
        row: Row = [(" ", "text"), *separated(parts, width - 1, ("  ", "text"))]
        head = [] if height + 1 < LOW_PANEL_HEIGHT else [row]
        return [*head, *self.curve("tokens", curve, width, height - len(head), options, view.step_seconds)]

    def shown_curve(self, view: View, options: ViewOptions) -> Curve:
        return view.tokens_per_second
