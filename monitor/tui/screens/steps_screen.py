"""The steps screen: the step table, and one step in detail (phases, metrics, GPUs, console, sampled stacks)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from statistics import fmean

from monitor import units
from monitor.gpu_lines import reasons_in_words
from monitor.keymap import OPEN, RESTORE
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.palettes import OTHER
from monitor.sources.console_history import ConsoleHistory
from monitor.sources.console_marks import ConsoleMarks
from monitor.tui.drawing.clock_lanes import GPU_CLOCK, HOST_CLOCK, clock
from monitor.tui.drawing.rows import Row, Span, column, fit, printable, row_width, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.console_panel import why_no_console
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.steps_panel import no_steps
from monitor.tui.screens.page import ListBody, screen, with_no_break_spaces
from monitor.tui.screens.step_table import (
    MEAN_STATUS,
    Column,
    PlacedColumn,
    StepLine,
    columns,
    ordered,
    placed_columns,
    step_lines,
)
from trainhooks.protocol.events import Gpu, Step
from trainhooks.protocol.limits import Number

AROUND_SECONDS = 1.0  # seconds before and after a step: GPUs are read once a second, the console more often
MAX_CONSOLE_LINES = 40  # console lines
MAX_STEP_METRICS = 40
NAME_WIDTH, FIGURE_WIDTH = 24, 12  # cells of a metric's name, and of a figure
TYPICAL_WIDTH = 14  # cells at least of the column of typical times
_OF_THE_RUN = ("mean", "min", "max")
OTHER_SERIES = "  no role"
_GROUPED_NOTE = "GPU clock: steps timed as a group, slower than typical"


def _head(text: str) -> Row:
    return [(f" {text}", "text bold")]


def _why_not(text: str, width: int) -> list[Row]:
    return wrap([(f"   {text}", "muted")], width - 1, 3)


def step_detail(line: StepLine, view: View, options: ViewOptions, width: int) -> list[Row]:
    rows: list[Row] = [*wrap(_title(line, view, width), width - 1, 1), []]
    if line.slow is not None and line.slow.steps > 1:
        rows += [*_why_not(_GROUPED_NOTE, width), []]
    rows += _phases(line, view, options, width)
    rows += [[], *_metrics(line, view, width)]
    rows += [[], _head("GPUs during the step"), *_gpus(line, view, width)]
    rows += [[], _head("Console during the step"), *_console(line, view, options, width)]
    rows += [[], _head("Sampled stacks by phase"), *_stack(line, view, width)]
    return rows


def _value(value: Number | None) -> str:
    return units.UNKNOWN if value is None else fit(units.number(value), FIGURE_WIDTH - 2)


def _metrics(line: StepLine, view: View, width: int) -> list[Row]:
    """Return the metrics of the step beside those of all steps of its role."""
    step = line.event
    if step is None:
        gone = "not kept for older steps; the charts have the means"
        return [_head("Metrics"), *_why_not(gone, width)]
    if not step.metrics:
        return [_head("Metrics"), *_why_not("none logged in this step", width)]
    beside = _OF_THE_RUN if width >= NAME_WIDTH + 4 + FIGURE_WIDTH * 4 else ()
    whose = "role's" if step.role else "run's"
    rows: list[Row] = [[(column(" Metrics", NAME_WIDTH + 4), "text bold")]]
    rows[0].append((column(_own_title(line), FIGURE_WIDTH, right=True), "muted"))
    rows[0] += [(column(f"{whose} {name}", FIGURE_WIDTH, right=True), "muted") for name in beside]
    for name, value in list(step.metrics.items())[:MAX_STEP_METRICS]:
        row: Row = [
            (f"   {column(name, NAME_WIDTH)} ", "muted"),
            (column(_value(value), FIGURE_WIDTH, right=True), "text bold"),
        ]
        series = _series(step, name, value, view)
        whole = view.report.metrics.get(series)
        other = OTHER_SERIES if step.role and series == name else ""
        free = width - (NAME_WIDTH + 4 + FIGURE_WIDTH * (1 + len(beside)) + len(other))
        fits = free >= 0
        several = _one_of_several(view.metrics.get(series), step.index)
        for statistic in beside if whole is not None and fits else ():
            row.append((column(_value(getattr(whole, statistic)), FIGURE_WIDTH, right=True), "muted"))
        row.append((other if beside and fits else "", "muted"))
        rows.append([*row, (several if len(several) <= free else "", "muted")])
    return rows


def _series(step: Step, name: str, value: Number, view: View) -> str:
    """Return the name of the series that holds the value: metrics logged after a step's end may have no role."""
    own = f"{step.role}/{name}" if step.role else name  # as the report names them
    return next((series for series in (own, name) if _holds(view.metrics.get(series), step.index, value)), own)


def _one_of_several(curve: Curve | None, step: int) -> str:
    """Return the range of values if several were logged in this step, since a chart may show another; else empty."""
    if curve is None or curve.width != 1:
        return ""
    place = bisect_left(curve.x, step)
    if place == len(curve.x) or curve.x[place] != step or not curve.low[place] < curve.high[place]:
        return ""
    return f"  range in this step: {units.number(curve.low[place])} – {units.number(curve.high[place])}"


def _holds(curve: Curve | None, step: int, value: Number) -> bool:
    """Return whether the series may have had this value at this step."""
    index = bisect_right(curve.x, step) - 1 if curve is not None else -1
    if curve is None or index < 0 or step >= curve.x[index] + curve.width or isinstance(value, str):
        return False
    slack = 1e-6 * abs(value)
    return curve.low[index] - slack <= value <= curve.high[index] + slack


def _title(line: StepLine, view: View, width: int) -> Row:
    row: Row = [(f" step {line.name}", "text bold"), (f"  {units.duration(line.seconds)}", "text bold")]
    if line.clock:
        row.append((f", {line.clock}", "muted"))
    if line.count > 1 and line.slow is not None:
        typical = units.brief(line.slow.baseline / line.slow.steps)
        row.append((f"  slow: mean of {line.count:,} steps, typical {typical}", "bad bold"))
        return row
    if line.count > 1:
        row.append((f" a step, mean of {line.count:,} steps (older steps are not kept singly)", "muted"))
        return row
    if line.slow is not None:
        grew = f", {line.slow.culprit} grew most" if line.slow.culprit else ""
        # On a GPU it is slow by the GPU clock: beside host times both figures are shown.
        other = f"GPU clock {units.brief(line.slow.seconds)}, " if line.clock == HOST_CLOCK else ""
        typical = f"  slow: {other}typical {units.brief(line.slow.baseline)}{grew}"
        row.append((fit(typical, width), "bad bold"))
    elif line.status:
        row.append((f"  {fit(line.status, 80)}", "muted" if line.status == "ok" else "warning"))
    step = line.event
    if step is not None:
        row.append((f"  {of}", "muted") if (of := shown_rank(view.report)) else ("", "text"))
        for label, value in (("role", step.role), ("stage", step.stage), ("epoch", step.epoch)):
            row.append((f"  {label} {fit(str(value), 24)}", "muted") if value is not None else ("", "text"))
        counts = (("tokens", step.tokens), ("with padding", step.padded_tokens), ("samples", step.samples))
        words = [f"{number:,} {label}" for label, number in counts if number is not None]
        words += [f"{units.rate(line.rate, 'tok/s')} within the step"] if math.isfinite(line.rate) else []
        row += [(f"  {with_no_break_spaces(word)}", "muted") for word in words]
    return row


def _phases(line: StepLine, view: View, options: ViewOptions, width: int) -> list[Row]:
    typical, words = _typical(line, view)
    longest = max(line.phases.values(), default=0.0)
    beside = max(TYPICAL_WIDTH, min(text_width(words) + 2, width - 1 - 22 - FIGURE_WIDTH))
    room = max(0, min(60, width - 26 - FIGURE_WIDTH - beside))
    title = f" Phases, {line.clock}" if line.clock else " Phases"
    rows: list[Row] = [[
        (column(title, 22 + room), "text bold"), (column(_own_title(line), FIGURE_WIDTH, right=True), "muted"),
        (column(fit(words, beside - 2), beside, right=True), "muted"),
    ]]  # fmt: skip
    for name, seconds in sorted(line.phases.items(), key=lambda item: item[0] == OTHER):
        length = seconds / longest if longest > 0 else 0.0
        typical_seconds = typical.get(name)
        tone = "bad bold" if line.slow is not None and name == line.slow.culprit else "text"
        rows.append([
            (f"   {column(name, 18)} ", tone), (column(units.bar(length, room), room), options.phases[name]),
            (column(units.duration(seconds), FIGURE_WIDTH, right=True), "text bold"),
            (column(units.duration(typical_seconds), beside, right=True), "muted"),
        ])  # fmt: skip
    return rows


def _own_title(line: StepLine) -> str:
    """Return the title of the step's own figures."""
    return "this step" if line.count == 1 else "mean step"


def _typical(line: StepLine, view: View) -> tuple[dict[str, float], str]:
    """Return the typical phases of such a step in seconds, and what they are the median of."""
    if line.slow is not None and line.slow.usual_phases and line.clock != HOST_CLOCK:
        return line.slow.usual_phases, "typical then"
    if line.by_device:  # typical times of a role or stage are by the host clock
        return {row.name: row.p50 for row in view.report.phases}, "median of the run"
    step = line.event
    for kind in view.details.kinds:
        if step is not None and (kind.role, kind.stage) == (step.role, step.stage):
            own = [name for name, value in (("role", kind.role), ("stage", kind.stage)) if value]
            return kind.phases, f"median of its {' and '.join(own)}" if own else "median of the latest steps"
    rows = view.report.host_phases or view.report.phases  # a step's own times are the host's
    return {row.name: row.p50 for row in rows}, "median of the run"


def _during(line: StepLine, t: float) -> bool:
    step = line.event
    return step is not None and step.start - AROUND_SECONDS <= t <= step.start + step.duration + AROUND_SECONDS


def _gpus(line: StepLine, view: View, width: int) -> list[Row]:
    if not view.details.gpus:
        return _why_not("no GPU found", width)
    rows: list[Row] = []
    for detail in view.details.gpus.values():
        readings = [reading for reading in detail.readings if _during(line, reading.t)]
        if readings:
            rows.append(_gpu(readings))
    return rows or _why_not("not kept: readings are kept for four minutes", width)


def _gpu(readings: list[Gpu]) -> Row:
    def mean(name: str) -> float | None:
        known = [value for reading in readings if (value := getattr(reading, name)) is not None]
        return fmean(known) if known else None

    clock, power, heat = mean("sm_clock"), mean("power"), mean("temperature")
    reasons = list(dict.fromkeys(word for reading in readings for word in reasons_in_words(reading.reasons)))
    parts = [
        f"GPU {readings[-1].index}", f"busy {units.percent(mean('utilization'))}",
        f"{units.UNKNOWN if clock is None else f'{clock:,.0f}'} MHz",
        f"{units.UNKNOWN if power is None else f'{power:.0f}'} W",
        f"{units.UNKNOWN if heat is None else f'{heat:.0f}'} °C", units.size(mean("memory_used")),
    ]  # fmt: skip
    return [("   " + "   ".join(parts), "text"), ("   " + ", ".join(reasons), "warning")]


def _console(line: StepLine, view: View, options: ViewOptions, width: int) -> list[Row]:
    lines = _recorded(line, view)
    if lines is None:
        pairs = zip(view.console_times, view.console, strict=False)
        lines = [text for t, text in pairs if math.isfinite(t) and _during(line, t)]
    if not lines:
        seen = [t for t in view.console_times if math.isfinite(t)]
        step = line.event
        if _recorded(line, view) is not None or (step is not None and seen and seen[0] <= step.start):
            return _why_not("no output", width)
        unknown = "unknown: the run has no times of its output"
        return _why_not(why_no_console(view, options) or unknown, width)
    rows: list[Row] = [[("   " + fit(text, width - 4), "muted")] for text in lines[-MAX_CONSOLE_LINES:]]
    return [*_why_not("from 1 s before to 1 s after the step", width), *rows]


def _recorded(line: StepLine, view: View) -> list[str] | None:
    """Return what the console file has of the time around the step; None where it is not known."""
    step = line.event
    if view.console_file is None or step is None:
        return None
    marks = ConsoleMarks(view.console_file)
    marks.refresh()
    begin = marks.place_of(step.start - AROUND_SECONDS)
    end = marks.place_of(step.start + step.duration + AROUND_SECONDS)
    if begin is None or end is None:
        return None
    window = ConsoleHistory(view.console_file).after(begin)
    return [text for text, start in zip(window.lines, window.starts, strict=False) if start < end]


def _stack(line: StepLine, view: View, width: int) -> list[Row]:
    """Return the sampled locations of each phase; phases with the same locations share an entry."""
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(line.phases, key=lambda phase: phase == OTHER):
        places = view.details.frames.get(name, ())
        total = sum(count for _, count in places)
        samples = tuple((units.share(count / total), place) for place, count in places[:3])
        names.setdefault(samples, []).append(name)
    names.pop((), None)
    rows: list[Row] = []
    for samples, phases in names.items():
        rows += wrap([(f"   {', '.join(fit(name, 40) for name in phases)}", "text")], width - 1, 3)
        for share, place in samples:
            head = f"     {column(share, 5, right=True)} "
            rows += wrap([(head, "text bold"), (printable(place[:400]), "muted")], width - 1, 13, 2)
    if not view.details.frames:
        return _why_not("no stack samples in this run", width)
    if not rows:
        return _why_not("no stack samples for phases this short", width)
    return [*_why_not("all steps so far, not only this one", width), *rows]


STATUS_WIDTH = 9  # cells of the status at least: `skipped`
MAX_STATUS_WIDTH = 42
NARROW_STATUS_WIDTH = 36  # cells below which the status is only the sign before the row
KINDS_TITLE = "  status, role / stage"
TITLES_BEGIN = 2  # cells before the titles of the columns
TITLE_CELLS = 12  # cells that the title and the ends of its rule take


@screen
class StepTable(ListBody):
    screen_name = "steps"
    title = "Steps"
    list_actions = ("sort(1)", "reverse", "slow")
    has_lanes = True
    about = (
        "One row per step for the latest steps and every slow step; older steps are averaged over ranges, and the first"
        " column shows both ends. ▲ marks a slow step, - a skipped one. – is unknown, or a phase that did not occur."
        " tok/s counts the step's own time, without the pause before it. The last column is the main metric (reward or"
        " loss), if there is room.",
        "On a GPU the times are GPU times of the steps timed by CUDA events: all, or a random sample of short ones."
        " h switches to the host clock, which times every step. Enter opens a step: phases, metrics, GPUs, stacks.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0
        self._falling = True
        self._only_slow = False
        self._shown_for: tuple[View | None, int, bool, bool, bool] = (None, 0, True, False, False)
        self._lines: list[StepLine] = []
        self._columns: list[Column] = []

    def data(self, view: View, options: ViewOptions) -> object:
        steps = view.details.steps
        newest = steps[-1].index if steps else 0
        own = self._sort, self._falling, self._only_slow, self.selected, self.opened
        times = view.console_times if self.opened else ()
        timed = view.details.timed
        lanes = options.host, view.step_seconds, view.host_step_seconds, len(timed), timed[-1].step if timed else 0
        return newest, len(steps), lanes, view.report.slow_steps, times, own

    def _update_lines(self, view: View, options: ViewOptions) -> None:
        taken = (view, self._sort, self._falling, self._only_slow, options.host)
        if self._shown_for[0] is view and self._shown_for[1:] == taken[1:]:
            return
        self._shown_for = taken
        lines = step_lines(view, options.host)
        self._columns = columns(view, lines, options.host)
        self._sort = min(self._sort, len(self._columns) - 1)
        if self._only_slow:
            lines = [line for line in lines if line.status not in ("", "ok", MEAN_STATUS)]
        self._lines = ordered(lines, self._columns[self._sort], self._falling)

    def aside(self, view: View, options: ViewOptions) -> Row:
        if self.opened:
            return [(f"{OPEN.shown} or {RESTORE.shown}", "accent"), (" back to the table", "muted")]
        self._update_lines(view, options)
        row: Row = [(self._row_count(view, options), "muted")]
        more = self._more(view, self.size.width)
        beside = TITLE_CELLS + text_width(self.heading(view, options)) - text_width(self.title)
        return [*more, *row] if more and row_width(more) + row_width(row) + beside <= self.size.width else row

    def _row_count(self, view: View, options: ViewOptions) -> str:
        """Return the number of rows by kind, as text."""
        single = sum(line.count == 1 for line in self._lines)
        device = clock(view.report, options.host) == GPU_CLOCK
        timed = len({step.step for step in view.details.timed}) if device and not self._only_slow else 0
        what = "slow and skipped only, " if self._only_slow else ""
        kind = "timed step" if timed else "single step"
        words = f"{what}{units.plural(timed or single, kind, f'{kind}s')}"
        words += f" of {of}" if (of := shown_rank(view.report)) else ""
        others = len(self._lines) - (timed or single)
        beside = "" if device else " before them"  # timed steps and ranges are mixed
        return words + (f", {units.plural(others, 'range', 'ranges')}{beside}" if others else "")

    def _more(self, view: View, width: int) -> Row:
        """Return how many columns are hidden, and the key that shows them."""
        shown, status = self._placed(width)
        hidden = len(self._columns) - len(shown)
        kinds = _kinds(view) and status < len(KINDS_TITLE)
        if hidden:
            return [("→", "accent"), (f" {units.plural(hidden + kinds, 'more column', 'more columns')}  ", "muted")]
        return [(OPEN.shown, "accent"), (": details of a step  ", "muted")] if kinds else []

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        self._update_lines(view, options)
        return [line.key for line in self._lines]

    def nothing(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        if self._only_slow:
            return [[("  no slow or skipped steps; ", "muted"), ("x", "accent"), (" shows all", "muted")]]
        return no_steps(view, width, self.size.height)

    def fixed(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        arrow = "↓" if self._falling else "↑"
        row: Row = [(" " * TITLES_BEGIN, "text")]
        shown, status = self._placed(width)
        for place in shown:
            title = f"{fit(place.column.title, place.width - 2)}{arrow}" if place.sorts else place.column.title
            title = fit(title, place.width - 1)  # one cell between two titles
            phase = place.column.phase
            tone = "accent bold" if place.sorts else options.phases[phase] if phase else "muted"
            row.append((column(title, place.width, right=True), tone))
        words = KINDS_TITLE if _kinds(view) and status >= len(KINDS_TITLE) else "  status"
        return [[*row, (words if status else "", "muted")]]

    def _placed(self, width: int) -> tuple[list[PlacedColumn], int]:
        """Return the visible columns, and the cells for the status after them."""
        room = width - 4  # without the cursor and the sign before, and the scroll arrow after them
        status = STATUS_WIDTH if room >= NARROW_STATUS_WIDTH else 0
        shown, left = placed_columns(self._columns, self._sort, room - status)
        return shown, min(MAX_STATUS_WIDTH, status + left) if status else 0

    def entry(self, key: object, view: View, options: ViewOptions, width: int, chosen: bool) -> list[Row]:
        line = next(row_line for row_line in self._lines if row_line.key == key)
        tone = "bad" if line.slow is not None else "muted" if line.count > 1 or line.status != "ok" else "text"
        row: Row = [("▶" if chosen else " ", "accent bold"), _sign(line)]
        shown, status = self._placed(width)
        for place in shown:
            bold = " bold" if chosen or place.sorts else ""
            row.append((column(place.column.cell(line), place.width, right=True), tone + bold))
        if status:
            status_text = _status(line, status - 2, status >= len(KINDS_TITLE))
            row.append((f"  {status_text}", "warning" if line.status.startswith("skipped") else tone))
        return [row]

    def opened_rows(self, key: object, view: View, options: ViewOptions, width: int) -> list[Row]:
        line = next((row_line for row_line in self._lines if row_line.key == key), None)
        if line is None:
            return []
        wanted = self._selected_key
        words = f" step {wanted:,} not timed on the GPU; nearest timed step:"
        beside: list[Row] = (
            wrap([(words, "muted")], width - 1, 1) if line.by_device and wanted not in line.steps else []
        )
        return [*beside, *step_detail(line, view, options, width)]

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that sorts by the column whose title was clicked, or reverses it."""
        if self.opened or y != 1 or not self.keys(view, options):
            return super().hit(view, options, x, y)
        at = TITLES_BEGIN
        for place in self._placed(self.size.width)[0]:
            if at <= x < at + place.width:
                by = self._columns.index(place.column) - self._sort
                return f"screen.body('sort({by})')" if by else "screen.body('reverse')"
            at += place.width
        return ""

    @property
    def _selected_key(self) -> int:
        """Return the selected step, by either clock; 0 if there is none."""
        return self.selected[0] if isinstance(self.selected, tuple) else 0

    @property
    def opened_step(self) -> int | None:
        """Return the step whose page is open; None in the table."""
        return self._selected_key or None if self.opened else None

    def choice(self, keys: list[object]) -> int:
        """Return the selected row; after a change of the clock, that of the nearest step: a sample lacks some."""
        if self.selected is None or self.selected in keys:
            return super().choice(keys)
        return min(range(len(keys)), key=lambda place: abs(self._lines[place].step - self._selected_key))

    def open_at(self, key: object, view: View, options: ViewOptions) -> None:
        """Open the slowest of the steps in `key`, the first one and their number; if none is kept, the nearest."""
        assert isinstance(key, tuple)
        self._update_lines(view, options)
        within = [line for line in self._lines if line.step in range(key[0], sum(key))]
        slowest = max(within, key=lambda line: (line.seconds > 0, line.seconds), default=None)
        super().open_at(slowest.key if slowest is not None else key, view, options)

    def do_sort(self, by: int) -> None:
        if self._columns:
            self._sort = (self._sort + by) % len(self._columns)
            self._falling = True

    def do_reverse(self) -> None:
        self._falling = not self._falling

    def do_slow(self) -> None:
        self._only_slow = not self._only_slow


def _kinds(view: View) -> bool:
    return any(step.role or step.stage for step in view.details.steps)


def _status(line: StepLine, room: int, kinds: bool) -> str:
    """Return the status, with `kinds` also role and stage, shortened to `room` cells."""
    kind = ""
    if kinds and line.event is not None and (line.event.role or line.event.stage):
        kind = ", " + " / ".join(part for part in (line.event.role, line.event.stage) if part)
    if line.slow is not None:
        culprit = line.slow.culprit
        ways = [f"▲ slow: {culprit} grew most{kind}", f"▲ {culprit}{kind}", f"▲ {culprit}"] if culprit else []
        ways.append("▲ slow")
    elif line.count > 1:
        ways = ["mean of a range", "mean"]
    else:
        ways = [line.status + kind, line.status, line.status.partition(":")[0]]
    return fit(next((words for words in ways if text_width(words) <= room), ways[-1]), room)


def _sign(line: StepLine) -> Span:
    """Return the sign before the row: color alone is not enough, and a narrow screen has no room for the status."""
    if line.slow is not None:
        return "▲", "bad bold"
    return ("-", "warning") if line.status.startswith("skipped") else (" ", "text")
