"""The rows of the table of steps: single steps as far as they are kept, and stretches of the run before them. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from monitor import units as fmt
from monitor.model.device_lane import parts_told
from monitor.model.metric_order import place
from monitor.model.report import Curve, PhaseRow, SlowStep, View
from monitor.model.speed_classes import Bounds
from monitor.tui.lane import GPU_CLOCK, lane, shown_phases, two_lanes
from monitor.tui.rows import fit, text_width
from trainhooks.events import GpuTime, Number, Step

MAX_PHASE_COLUMNS = 8
LEAST_NAME = 4  # cells: so wide is the title
LEAST_PHASE, LEAST_LONG = 8, 13  # cells: a time, and the beginning of the phase's name; where it takes minutes
LONGEST_TITLE = 15
METRIC = 11  # cells of a metric's value, `-0.0001234` the longest usual one
GAP = 2  # cells before a column: where there are few, its title takes one of them
MINUTE = 60.0
MEAN = "mean"  # status of a row that is no step's own: the mean of some


@dataclass(frozen=True)
class StepLine:
    """A row: one step, or a stretch of `count` steps of which only means are kept. None and nan are unknown."""

    step: int
    count: int
    seconds: float
    phases: dict[str, float]
    tokens: int | None = None
    status: str = ""
    slow: SlowStep | None = None
    event: Step | None = None
    clock: str = ""  # of the times, where a GPU is used

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
        """Tokens a second of its own time: a pause before it is none of its work. nan: unknown."""
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


def of_timed(told: GpuTime, step: Step | None, slow: SlowStep | None) -> StepLine:
    """A step by the device's clock; `step` is what the host told of it, as far as that is kept."""
    line = of_event(step, slow, GPU_CLOCK) if step is not None else None
    tokens, status = (line.tokens, line.status) if line is not None else (None, "slow" if slow else "")
    return StepLine(told.step, 1, told.seconds, parts_told(told), tokens, status, slow, step, GPU_CLOCK)


def _stretches(curve: Curve, phase_curves: dict[str, Curve], before: int, clock: str) -> list[StepLine]:
    """The run up to step `before`, as the means that its curve keeps."""
    lines = []
    for x, mean in zip(curve.x, curve.mean, strict=True):
        first, count = max(1, int(x)), min(curve.width, before - max(1, int(x)))
        if count < 1:
            break
        phases = {name: value for name, each in phase_curves.items() if (value := _at(each, curve, x)) is not None}
        status = MEAN if clock == GPU_CLOCK and count == 1 else ""  # of the steps between two timed ones
        lines.append(StepLine(first, count, mean, phases, None, status, clock=clock))
    return lines


def _at(curve: Curve, like: Curve, x: float) -> float | None:
    """The curve's mean in the bucket at `x`; None where its buckets are of another width, or this one is empty."""
    if curve.width != like.width:
        return None
    place = bisect_left(curve.x, x)
    return curve.mean[place] if place < len(curve.x) and curve.x[place] == x else None


def step_lines(view: View, host: bool = False) -> list[StepLine]:
    """All rows, in the order of the steps: by the device's clock where it is known, of a sample of them.

    Args:
        host: by the host's clock, which tells of each.
    """
    if two_lanes(view.report) and not host:
        return _device_lines(view)
    told = lane(view, True)
    curves = told.step_seconds, told.phase_seconds
    if told.clock and not two_lanes(view.report):  # else what leads may be the run's pace: no time of single steps
        curves = view.host_step_seconds, view.host_phase_seconds
    slow = {each.step: each for each in view.report.slow_steps if each.steps == 1}
    kept = [of_event(step, slow.get(step.index), told.clock) for step in view.details.steps]
    # A slow step of a GPU run is known by the device's clock: its figures are none for this lane.
    old = [] if told.clock else [_of_slow(each, "") for each in slow.values()]
    return _with_past(kept, old, curves, told.clock)


def _device_lines(view: View) -> list[StepLine]:
    slow = {each.step: each for each in view.report.slow_steps if each.steps == 1}
    events = {step.index: step for step in view.details.steps}
    timed = {told.step: told for told in view.details.timed}  # of one that was done again, the last
    kept = [of_timed(timed[step], events.get(step), slow.get(step)) for step in sorted(timed)]
    # Stretches, and single steps that the host named in one: these were not timed alone.
    named = [_of_slow(each, GPU_CLOCK) for each in view.report.slow_steps if each.steps > 1 or each.step not in timed]
    old = [line for line in named if not kept or line.step < kept[0].step]
    within = [line for line in named if line not in old]
    told = lane(view, False)
    lines = _with_past(kept, old, (told.step_seconds, told.phase_seconds), GPU_CLOCK)
    return sorted([*lines, *within], key=lambda line: line.step)


def _of_slow(slow: SlowStep, clock: str) -> StepLine:
    return StepLine(slow.step, slow.steps, slow.seconds / slow.steps, slow.phases, None, "slow", slow, clock=clock)


def _with_past(
    kept: list[StepLine], old: list[StepLine], curves: tuple[Curve, dict[str, Curve]], clock: str
) -> list[StepLine]:
    """The steps that are kept one by one; before them slow ones, and the stretches that curves keep."""
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
    least: int = 0  # cells that it needs, where it can do with fewer
    spare: bool = False  # it has its place where no other column is narrowed for it

    @property
    def needed(self) -> int:
        """A phase's long name is shortened before a column is left out."""
        return self.least or self.width


@dataclass(frozen=True)
class Placed:
    """A column that is in sight."""

    column: Column
    width: int
    sorts: bool


def placed(columns: list[Column], sort: int, room: int) -> tuple[list[Placed], int]:
    """The columns that fit, the first of them and the one that sorts; and the cells that are left of `room`."""
    chosen = {sort}
    left = room - columns[sort].needed
    for index, each in enumerate(columns):
        if index == sort:
            continue
        narrowed = sum(columns[one].width - columns[one].needed for one in chosen) if each.spare else 0
        if each.needed + narrowed > left:
            break
        chosen.add(index)
        left -= each.needed
    widths = {index: columns[index].needed for index in sorted(chosen)}
    for spared in (GAP - 1, 0):  # every title first, then the room between them
        for index, width in widths.items():
            more = max(0, min(columns[index].width - spared - width, left))
            left -= more
            widths[index] += more
    return [Placed(columns[index], width, index == sort) for index, width in widths.items()], max(0, left)


def columns(view: View, lines: list[StepLine], host: bool = False) -> list[Column]:
    """The columns of the table; the first as wide as the longest name among `lines`."""
    newest = [*lines[-1:], *[line for line in reversed(lines) if line.count > 1][:1]]  # none before has more digits
    names = max([LEAST_NAME, *(len(line.name) for line in newest)]) + GAP
    long = any(line.seconds >= MINUTE for line in lines)
    table = [
        Column("step", names, lambda line: line.name, lambda line: line.step),
        Column("time", LEAST_LONG if long else 9, lambda line: fmt.duration(line.seconds), lambda line: line.seconds),
    ]
    classes = view.report.speed_classes
    if classes is not None:
        bounds = Bounds(classes.fast_seconds, classes.slow_seconds)
        table.append(Column("class", 9, lambda line: _class(line, bounds), lambda line: line.seconds))
    largest = sorted(shown_phases(view.report, host), key=lambda phase: -phase.share)[:MAX_PHASE_COLUMNS]
    table += [_phase_column(phase) for phase in largest]
    counts = [step.tokens for step in view.details.steps if step.tokens is not None]
    if counts:
        wide = max(len("tokens"), len(fmt.count(max(counts)))) + GAP
        tokens = Column("tokens", wide, lambda line: fmt.count(line.tokens), lambda line: _number(line.tokens))
        table += [tokens, Column("tok/s", 9, lambda line: fmt.rate(line.rate, "").strip(), lambda line: line.rate)]
    return [*table, *_main_metric(view)]


def _main_metric(view: View) -> list[Column]:
    """What the training is about, as single steps logged it; a stretch has none."""
    names = {name for step in view.details.steps for name in step.metrics or ()}
    found = sorted((name for name in names if place(name)[0] < 2), key=lambda name: (place(name), name))
    if not found:
        return []
    name = found[0]

    def value(line: StepLine) -> Number | None:
        return line.event.metrics.get(name) if line.event is not None and line.event.metrics else None

    def sorts_by(line: StepLine) -> float:
        known = value(line)
        return math.nan if known is None or isinstance(known, str) else float(known)

    width = max(METRIC, min(text_width(name), LONGEST_TITLE) + GAP)
    return [Column(fit(name, LONGEST_TITLE), width, lambda line: fmt.number(value(line)), sorts_by, spare=True)]


def _class(line: StepLine, bounds: Bounds) -> str:
    """Fast, normal or slow by the person's own bounds; of a stretch the mean is none of a step."""
    return bounds.of(line.seconds) if line.count == 1 and math.isfinite(line.seconds) else fmt.UNKNOWN


def _phase_column(phase: PhaseRow) -> Column:
    name = phase.name
    least = LEAST_PHASE if phase.max < MINUTE else LEAST_LONG
    return Column(
        name,
        max(least, min(text_width(name), LONGEST_TITLE) + GAP),
        lambda line: fmt.duration(line.phases.get(name)),
        lambda line: line.phases.get(name, math.nan),
        name,
        least,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def ordered(lines: list[StepLine], by: Column, falling: bool) -> list[StepLine]:
    """Sorted; rows that do not know the value come last either way."""
    known = [line for line in lines if math.isfinite(by.value(line))]
    unknown = [line for line in lines if not math.isfinite(by.value(line))]
    return [*sorted(known, key=by.value, reverse=falling), *unknown]
