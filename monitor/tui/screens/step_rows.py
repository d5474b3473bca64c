"""The rows of the table of steps: single steps as far as they are kept, and stretches of the run before them. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from monitor import units as fmt
from monitor.model.metric_order import place
from monitor.model.report import Curve, PhaseRow, SlowStep, View
from monitor.model.speed_classes import Bounds
from monitor.tui.rows import fit, text_width
from trainhooks.events import Number, Step

MAX_PHASE_COLUMNS = 8
LEAST_NAME = 4  # cells: so wide is the title
LEAST_PHASE, LEAST_LONG = 8, 13  # cells: a time, and the beginning of the phase's name; where it takes minutes
LONGEST_TITLE = 15
METRIC = 11  # cells of a metric's value, `-0.0001234` the longest usual one
GAP = 2  # cells before a column: where there are few, its title takes one of them
MINUTE = 60.0


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


def of_event(step: Step, slow: SlowStep | None) -> StepLine:
    phases: dict[str, float] = {}
    for name, seconds, _, _ in step.phases:
        phases[name] = phases.get(name, 0.0) + seconds
    if step.duration > 0:
        phases["other"] = max(0.0, step.duration - sum(phases.values()) + phases.get("other", 0.0))
    status = step.status if step.status == "ok" else f"skipped: {step.reason or 'no reason given'}"
    seconds = step.duration if step.duration > 0 else math.nan
    return StepLine(step.index, 1, seconds, phases, step.tokens, "slow" if slow else status, slow, step)


def _curves(view: View) -> tuple[Curve, dict[str, Curve]]:
    """Steps and phases by the host's clock: single steps are told by no other."""
    if view.report.device is None:
        return view.step_seconds, view.phase_seconds
    return view.host_step_seconds, view.host_phase_seconds


def _stretches(view: View, before: int) -> list[StepLine]:
    """The run up to step `before`, as the means that its curve keeps."""
    curve, phase_curves = _curves(view)
    lines = []
    for x, mean in zip(curve.x, curve.mean, strict=True):
        first, count = max(1, int(x)), min(curve.width, before - max(1, int(x)))
        if count < 1:
            break
        phases = {name: value for name, each in phase_curves.items() if (value := _at(each, curve, x)) is not None}
        lines.append(StepLine(first, count, mean, phases))
    return lines


def _at(curve: Curve, like: Curve, x: float) -> float | None:
    """The curve's mean in the bucket at `x`; None where its buckets are of another width, or this one is empty."""
    if curve.width != like.width:
        return None
    place = bisect_left(curve.x, x)
    return curve.mean[place] if place < len(curve.x) and curve.x[place] == x else None


def step_lines(view: View) -> list[StepLine]:
    """All rows, in the order of the steps."""
    slow = {each.step: each for each in view.report.slow_steps if each.steps == 1}
    kept = [of_event(step, slow.get(step.index)) for step in view.details.steps]
    first = kept[0].step if kept else math.inf
    curve, _ = _curves(view)
    newest = curve.end if curve.end is not None else curve.x[-1] + curve.width - 1 if curve.x else 0
    before = int(first) if kept else int(newest) + 1
    old = [
        StepLine(each.step, 1, each.seconds, each.phases, None, "slow", each)
        for each in view.report.slow_steps
        if each.step < first and each.steps == 1
    ]
    known = {line.step for line in old}
    stretches = [line for line in _stretches(view, before) if line.count > 1 or line.step not in known]
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


def columns(view: View, lines: list[StepLine]) -> list[Column]:
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
    phases = sorted(view.report.phases, key=lambda phase: -phase.share)[:MAX_PHASE_COLUMNS]
    table += [_phase_column(phase) for phase in phases]
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
