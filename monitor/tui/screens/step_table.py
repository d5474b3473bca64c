"""The rows of the step table: single steps as far as they are kept, and ranges of older steps. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from monitor import units
from monitor.model.device.device_steps import timed_parts
from monitor.model.report import PhaseRow, SlowStep
from monitor.model.steps.series import Curve, metric_place
from monitor.model.steps.speed_classes import Bounds
from monitor.model.view import View
from monitor.tui.drawing.clock_lanes import GPU_CLOCK, lane, largest, shown_phases, two_lanes
from monitor.tui.drawing.rows import fit, text_width
from trainhooks.protocol.events import GpuTime, Step
from trainhooks.protocol.limits import Number

MAX_PHASE_COLUMNS = 8
MIN_TITLE_WIDTH = 4  # cells of the title
MIN_PHASE_WIDTH, LONG_TIME_WIDTH = 8, 13  # cells of a phase's time, below and above a minute
MAX_TITLE_WIDTH = 15
METRIC_WIDTH = 11  # cells of a metric's value, such as `-0.0001234`
COLUMN_GAP = 2  # cells before a column; a title may take one of them
MINUTE = 60.0
MEAN_STATUS = "mean"  # status of a row that is the mean of several steps


@dataclass(frozen=True)
class StepLine:
    """A row: one step, or a range of `count` steps of which only means are kept. None and nan mean unknown."""

    step: int
    count: int
    seconds: float
    phases: dict[str, float]
    tokens: int | None = None
    status: str = ""
    slow: SlowStep | None = None
    event: Step | None = None
    clock: str = ""  # of the times; empty without a GPU

    @property
    def steps(self) -> range:
        return range(self.step, self.step + self.count)

    @property
    def by_device(self) -> bool:
        return self.clock == GPU_CLOCK

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.count

    @property
    def name(self) -> str:
        return f"{self.step:,}" if self.count == 1 else f"{self.step:,}–{self.step + self.count - 1:,}"

    @property
    def rate(self) -> float:
        """Return the tokens per second of the step's own time, without a pause before it; nan if unknown."""
        return self.tokens / self.seconds if self.tokens is not None and self.seconds > 0 else math.nan


def of_event(step: Step, slow: SlowStep | None, clock: str = "") -> StepLine:
    phases: dict[str, float] = {}
    for name, seconds, _, _ in step.phases:
        phases[name] = phases.get(name, 0.0) + seconds
    if step.duration > 0:
        phases["other"] = max(0.0, step.duration - sum(phases.values()) + phases.get("other", 0.0))
    status = step.status if step.status == "ok" else f"skipped: {step.reason or 'no reason given'}"
    seconds = step.duration if step.duration > 0 else math.nan
    return StepLine(step.index, 1, seconds, phases, step.tokens, "slow" if slow else status, slow, step, clock)


def of_timed(timed: GpuTime, step: Step | None, slow: SlowStep | None) -> StepLine:
    """Return the line of a step by the device's clock; `step` is its host event, if kept."""
    line = of_event(step, slow, GPU_CLOCK) if step is not None else None
    tokens, status = (line.tokens, line.status) if line is not None else (None, "slow" if slow else "")
    return StepLine(timed.step, 1, timed.seconds, timed_parts(timed), tokens, status, slow, step, GPU_CLOCK)


def _stretches(curve: Curve, phase_curves: dict[str, Curve], before: int, clock: str) -> list[StepLine]:
    """Return the steps before `before` as ranges, the means that the curve keeps."""
    lines = []
    for x, mean in zip(curve.x, curve.mean, strict=True):
        first = max(1, int(x))
        count = min(int(x) + curve.width, before) - first
        if count < 1:
            break
        phases = {
            name: value
            for name, phase_curve in phase_curves.items()
            if (value := _at(phase_curve, curve, x)) is not None
        }
        status = MEAN_STATUS if clock == GPU_CLOCK and count == 1 else ""  # of the steps between two timed ones
        lines.append(StepLine(first, count, mean, phases, None, status, clock=clock))
    return lines


def _at(curve: Curve, like: Curve, x: float) -> float | None:
    """Return the curve's mean in the bucket at `x`; None if its buckets have another width or this one is empty."""
    if curve.width != like.width:
        return None
    place = bisect_left(curve.x, x)
    return curve.mean[place] if place < len(curve.x) and curve.x[place] == x else None


def step_lines(view: View, host: bool = False) -> list[StepLine]:
    """Return all rows in the order of the steps, by the device's clock if known, which times a sample of the steps.

    Args:
        host: use the host's clock, which times every step.
    """
    if two_lanes(view.report) and not host:
        return _device_lines(view)
    shown = lane(view, True)
    curves = shown.step_seconds, shown.phase_seconds
    if shown.clock and not two_lanes(view.report):  # else the lane may hold the run's pace, which has no single steps
        curves = view.host_step_seconds, view.host_phase_seconds
    slow = {slow_step.step: slow_step for slow_step in view.report.slow_steps if slow_step.steps == 1}
    kept = [of_event(step, slow.get(step.index), shown.clock) for step in view.details.steps]
    # A slow step of a GPU run has figures of the device's clock, which are not for this lane.
    old = [] if shown.clock else [_of_slow(slow_step, "") for slow_step in slow.values()]
    return _with_past(kept, old, curves, shown.clock)


def _device_lines(view: View) -> list[StepLine]:
    slow = {slow_step.step: slow_step for slow_step in view.report.slow_steps if slow_step.steps == 1}
    events = {step.index: step for step in view.details.steps}
    timed = {timed_step.step: timed_step for timed_step in view.details.timed}  # of a repeated step, the last
    kept = [of_timed(timed[step], events.get(step), slow.get(step)) for step in sorted(timed)]
    # Ranges of steps, and single steps within them: these were not timed alone.
    named = [
        _of_slow(slow_step, GPU_CLOCK)
        for slow_step in view.report.slow_steps
        if slow_step.steps > 1 or slow_step.step not in timed
    ]
    old = [line for line in named if not kept or line.step < kept[0].step]
    within = [line for line in named if line not in old]
    shown = lane(view, False)
    lines = _with_past(kept, old, (shown.step_seconds, shown.phase_seconds), GPU_CLOCK)
    return sorted([*lines, *within], key=lambda line: line.step)


def _of_slow(slow: SlowStep, clock: str) -> StepLine:
    return StepLine(slow.step, slow.steps, slow.seconds / slow.steps, slow.phases, None, "slow", slow, clock=clock)


def _with_past(
    kept: list[StepLine], old: list[StepLine], curves: tuple[Curve, dict[str, Curve]], clock: str
) -> list[StepLine]:
    """Return the kept single steps; before them older slow steps and the ranges that curves keep."""
    curve, phase_curves = curves
    first = kept[0].step if kept else math.inf
    newest = curve.end if curve.end is not None else curve.x[-1] + curve.width - 1 if curve.x else 0
    before = int(first) if kept else int(newest) + 1
    old = [line for line in old if line.step < first]
    known = {line.key for line in old}
    stretches = _stretches(curve, phase_curves, before, clock)
    stretches = [line for line in stretches if line.key not in known]
    return sorted([*stretches, *old, *kept], key=lambda line: line.step)


@dataclass(frozen=True)
class Column:
    """A column of the table: its title, its cell, and what it sorts by (nan: last)."""

    title: str
    width: int
    cell: Callable[[StepLine], str]
    value: Callable[[StepLine], float]
    phase: str = ""
    least: int = 0  # cells that it needs at least; 0: `width`
    optional: bool = False  # shown only if no other column is narrowed for it

    @property
    def needed(self) -> int:
        """Return the cells needed at least: long names are shortened before a column is left out."""
        return self.least or self.width


@dataclass(frozen=True)
class PlacedColumn:
    """A visible column."""

    column: Column
    width: int
    sorts: bool


def placed_columns(columns: list[Column], sort: int, room: int) -> tuple[list[PlacedColumn], int]:
    """Return the columns that fit, in order and with the sort column, and the cells left of `room`."""
    chosen = {sort}
    left = room - columns[sort].needed
    for index, candidate in enumerate(columns):
        if index == sort:
            continue
        narrowed = sum(columns[place].width - columns[place].needed for place in chosen) if candidate.optional else 0
        if candidate.needed + narrowed > left:
            break
        chosen.add(index)
        left -= candidate.needed
    widths = {index: columns[index].needed for index in sorted(chosen)}
    for spared in (COLUMN_GAP - 1, 0):  # every title first, then the room between them
        for index, width in widths.items():
            more = max(0, min(columns[index].width - spared - width, left))
            left -= more
            widths[index] += more
    return [PlacedColumn(columns[index], width, index == sort) for index, width in widths.items()], max(0, left)


def columns(view: View, lines: list[StepLine], host: bool = False) -> list[Column]:
    """Return the columns of the table; the first is as wide as the longest name among `lines`."""
    newest = [*lines[-1:], *[line for line in reversed(lines) if line.count > 1][:1]]  # earlier names are not longer
    names = max([MIN_TITLE_WIDTH, *(len(line.name) for line in newest)]) + COLUMN_GAP
    long = any(line.seconds >= MINUTE for line in lines)
    table = [
        Column("step", names, lambda line: line.name, lambda line: line.step),
        Column(
            "time",
            LONG_TIME_WIDTH if long else 9,
            lambda line: units.duration(line.seconds),
            lambda line: line.seconds,
        ),
    ]
    classes = view.report.speed_classes
    if classes is not None:
        bounds = Bounds(classes.fast_seconds, classes.slow_seconds)
        table.append(Column("class", 9, lambda line: _class(line, bounds), lambda line: line.seconds))
    table += [_phase_column(phase) for phase in largest(shown_phases(view.report, host), MAX_PHASE_COLUMNS)]
    counts = [step.tokens for step in view.details.steps if step.tokens is not None]
    if counts:
        wide = max(len("tokens"), len(units.count(max(counts)))) + COLUMN_GAP
        tokens = Column("tokens", wide, lambda line: units.count(line.tokens), lambda line: _number(line.tokens))
        table += [tokens, Column("tok/s", 9, lambda line: units.rate(line.rate, "").strip(), lambda line: line.rate)]
    return [*table, *_main_metric(view)]


def _main_metric(view: View) -> list[Column]:
    """Return the column of the main metric (reward, else loss), which single steps have; empty without one."""
    names = {name for step in view.details.steps for name in step.metrics or ()}
    main = sorted((name for name in names if metric_place(name)[0] < 2), key=lambda name: (metric_place(name), name))
    if not main:
        return []
    name = main[0]

    def value(line: StepLine) -> Number | None:
        return line.event.metrics.get(name) if line.event is not None and line.event.metrics else None

    def sorts_by(line: StepLine) -> float:
        known = value(line)
        return math.nan if known is None or isinstance(known, str) else float(known)

    width = max(METRIC_WIDTH, min(text_width(name), MAX_TITLE_WIDTH) + COLUMN_GAP)
    return [Column(fit(name, MAX_TITLE_WIDTH), width, lambda line: units.number(value(line)), sorts_by, optional=True)]


def _class(line: StepLine, bounds: Bounds) -> str:
    """Return fast, normal or slow by the user's bounds; unknown for a range, whose mean is no step."""
    return bounds.of(line.seconds) if line.count == 1 and math.isfinite(line.seconds) else units.UNKNOWN


def _phase_column(phase: PhaseRow) -> Column:
    name = phase.name
    least = MIN_PHASE_WIDTH if phase.max < MINUTE else LONG_TIME_WIDTH
    return Column(
        name,
        max(least, min(text_width(name), MAX_TITLE_WIDTH) + COLUMN_GAP),
        lambda line: units.duration(line.phases.get(name)),
        lambda line: line.phases.get(name, math.nan),
        name,
        least,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def ordered(lines: list[StepLine], by: Column, falling: bool) -> list[StepLine]:
    """Return the rows sorted by a column; rows without a value come last in both directions."""
    known = [line for line in lines if math.isfinite(by.value(line))]
    unknown = [line for line in lines if not math.isfinite(by.value(line))]
    return [*sorted(known, key=by.value, reverse=falling), *unknown]
