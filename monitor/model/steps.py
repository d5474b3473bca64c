"""Steps, spans and metrics taken into the figures of the rank that told them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from monitor import columns
from monitor.model.baseline import Baseline
from monitor.model.claims import ROUNDING, Piece, seconds_in_steps
from monitor.model.parts import OTHER as OTHER
from monitor.model.parts import Parts, columns_of, parts_of, rows_of
from monitor.model.report import SlowStep
from monitor.model.series import Column
from monitor.model.state import MAX_ALERTS, MAX_LATEST, MAX_MARKS, MAX_SLOW_STEPS, AlertRow, Figures, PhaseStats
from monitor.slab import Slab, append_all, known
from trainhooks.events import MAX_METRICS, OVERFLOW, Frames, Span, Step

RESTART = "restart"  # from the last step before an elastic restart to the first one after it
MAX_PHASES = 200  # names of phases and spans that get a row of their own
MAX_REASONS = 100
MAX_SKIPS = 10_000  # skipped steps whose place is known, should a restart do them again
MAX_ENDS = 500
MAX_LATE = 8  # steps back to which a metric may still belong that was logged after its step's end
MAX_PLACES = 200  # in a program, of which the sampler tells under one name


def take_steps(figures: Figures, slab: Slab, restart: int) -> None:
    """Finished steps that are alike.

    Args:
        restart: the elastic restart that their process belongs to.
    """
    if len(slab) > 1 and _crowded(figures, slab):
        for each in slab.singles():
            take_steps(figures, each, restart)
        return
    first = slab.first
    if figures.begins_again and restart == figures.restart:
        _begin_again(figures, first)
    figures.last_index = slab.index[-1]
    append_all(figures.latest, len(slab), slab.steps, 2 * MAX_LATEST, MAX_LATEST)
    if first.status == "ok":
        figures.steps_ok += len(slab)
    else:
        _skipped(figures, slab)
    if first.duration > 0.0:  # 0 is "not known": a step that the console told without a time counts, and that is all
        if first.thread is None:
            _step_times(figures, slab)
        groups = parts_of(slab)
        figures.step_seconds.extend(slab.index, slab.duration)
        _phases(figures.phases, groups, slab.index)
        if first.status == "ok":
            _judge(figures, slab, groups)
    if slab.metrics:
        _metrics(figures, slab)


def _crowded(figures: Figures, slab: Slab) -> bool:
    """Whether names may have to share a row: what goes into it must come step by step."""
    phases = {name for pattern in slab.phases for name in pattern.names}
    return (
        len(figures.phases.keys() | phases) >= MAX_PHASES
        or len(figures.metrics) + len(slab.metrics) >= MAX_METRICS
        or OVERFLOW in phases
        or OVERFLOW in slab.metrics
    )


def _skipped(figures: Figures, slab: Slab) -> None:
    for step in slab.rows:
        reason = count(figures.skipped, step.reason or "no reason given", MAX_REASONS)
        figures.skips.append((step.index, reason))
        if len(figures.skips) > MAX_SKIPS:
            del figures.skips[: MAX_SKIPS // 4]


# Elastic restarts


def _begin_again(figures: Figures, step: Step) -> None:
    """A restarted process has done its first step: what it does again counts once, and the gap has a name."""
    figures.begins_again = False
    figures.restarts += 1
    again = max(0, figures.last_index - step.index + 1)
    undone = min(again, figures.steps_ok + sum(figures.skipped.values()))
    figures.steps_again += undone
    _take_back(figures, step.index, undone)
    figures.start_step = max(0, min(figures.start_step, step.index - 1))
    for baseline in figures.baselines.values():
        baseline.warm_up()
    wall = figures.wall
    if wall.last_step is not None:
        unnamed = step.start - wall.last_step - wall.since_last_step
        if unnamed > 0:
            count(wall.spans, RESTART, MAX_PHASES, unnamed)
    text = f"restart {figures.restart}: rank {figures.rank} began again at step {step.index}"
    if undone:
        text += f"; {undone:,} {'step is' if undone == 1 else 'steps are'} done once more"
    alert(figures.alerts, step.t, RESTART, text)


def _take_back(figures: Figures, first: int, undone: int) -> None:
    """The last `undone` steps, from number `first` on, are to be done again: they do not count as done."""
    while figures.skips and figures.skips[-1][0] >= first and undone > 0:
        _, reason = figures.skips.pop()
        figures.skipped[reason] -= 1
        if not figures.skipped[reason]:
            del figures.skipped[reason]
        undone -= 1
    figures.steps_ok = max(0, figures.steps_ok - undone)


# The step


def kind_of(step: Step) -> str:
    """Steps of one role and stage are compared with each other."""
    return f"{step.role or ''}\n{step.stage or ''}"


def _step_times(figures: Figures, slab: Slab) -> None:
    """The steps' share of the run's own time, and what was done in it."""
    starts, ends = slab.start, columns.plus(slab.start, slab.duration)
    first, last = slab.first.start, columns.most(ends)
    wall = figures.wall
    if figures.claims.reach(first):
        steps = zip(columns.as_list(starts), columns.as_list(ends), strict=True)
        figures.claims.take_back(steps, partial(_give_back, figures))
    if wall.first_step is None:
        wall.first_step = first
    before = first if wall.last_step is None else wall.last_step
    if wall.warming:
        at = min(wall.warming, len(slab))
        wall.warm, wall.warming = float(ends[at - 1]), wall.warming - at
    wall.last_step = last if wall.last_step is None else max(before, last)
    wall.steps = columns.total(slab.duration, wall.steps)
    wall.since_last_step = 0.0
    times = columns.as_list(ends)
    figures.timelines.extend(kind_of(slab.first), columns.as_list(starts), times, slab.index)
    figures.pace.extend(first, times, _amounts(slab.tokens, slab), _amounts(slab.samples, slab))
    if slab.rare:
        _rare(figures, slab)
    if slab.tokens is not None:
        befores = columns.before(ends, before)  # when the step before ended
        if columns.exceeds(befores, starts):  # some overlap, as those of two processes of a rank do
            starts, ends = columns.as_list(starts), times
            befores = list(map(min, accumulate(columns.as_list(befores), max), starts))
        taken = columns.minus(ends, befores)
        tokens, (index, seconds) = known(slab.tokens, slab.index, taken)
        figures.tokens.extend(index, columns.floats(tokens))
        figures.pace_seconds.extend(index, seconds)


def _amounts(told: columns.Column | None, slab: Slab) -> columns.Column:
    if told is None:
        return [0] * len(slab)
    return told if columns.is_array(told) else [each or 0 for each in told]


def _rare(figures: Figures, slab: Slab) -> None:
    """What few programs tell of a step."""
    for step in slab.rows:
        if step.tokens is not None and step.padded_tokens is not None:
            figures.padded_steps += 1
            figures.padded_tokens += step.padded_tokens
            figures.unpadded_tokens += min(step.tokens, step.padded_tokens)
        if step.padded_tokens is not None or step.lengths is not None:
            figures.lengths.take(step)
        if step.forwards is not None and step.samples is not None:  # told of steps with several calls only
            figures.called_often += 1
            figures.called_singly += step.samples == step.forwards and _fed(step)


def _fed(step: Step) -> bool:
    """Whether the inputs were there before the calls: fetched, or learnt from one by one.

    An agent's next input is what came of its last output, and nobody can put these together.
    """
    return any(name == "data" or (name == "backward" and times == step.forwards) for name, _, _, times in step.phases)


def _phases(table: dict[str, PhaseStats], groups: list[Parts], index: Sequence[int]) -> None:
    for name, (xs, seconds) in columns_of(groups, index).items():
        stats = table.get(name)
        if stats is None:
            clock = next((group.clocks[name] for group in groups if name in group.clocks), "host")
            stats = table.setdefault(name if len(table) < MAX_PHASES else OVERFLOW, PhaseStats(clock))
        stats.seconds.extend(xs, seconds)


def _judge(figures: Figures, slab: Slab, groups: list[Parts]) -> None:
    """Compare steps with the usual ones of their role and stage."""
    kind = kind_of(slab.first)
    baselines = figures.baselines
    baseline = baselines.get(kind)
    if baseline is None:
        baseline = baselines.setdefault(kind if len(baselines) < MAX_PHASES else OVERFLOW, Baseline())
    usual = baseline

    def slow(at: int) -> None:
        _slow(figures, slab, at, rows_of(groups, at, at + 1)[0], usual)

    baseline.take(slab.duration, partial(rows_of, groups), slow)


def _slow(figures: Figures, slab: Slab, at: int, phases: dict[str, float], baseline: Baseline) -> None:
    usual = baseline.usual_phases()
    culprit = max(phases, key=lambda name: phases[name] - usual.get(name, 0.0))
    duration, ended, first = float(slab.duration[at]), float(slab.t[at]), slab.first
    times, kind = (duration, baseline.usual()), (first.role, first.stage)
    slow = SlowStep(slab.index[at], figures.rank, *times, culprit, phases, usual, *kind, ended)
    figures.slow_count += 1
    figures.slow_excess += duration - slow.baseline
    figures.slow_steps.append(slow)
    if len(figures.slow_steps) > MAX_SLOW_STEPS:
        del figures.slow_steps[0]
    alert(figures.alerts, ended, "slow-steps", str(slow))


# Metrics


def _metrics(figures: Figures, slab: Slab) -> None:
    role, table = slab.first.role, figures.metrics
    prefix = f"{role}/" if role else ""
    for name, told in slab.metrics.items():
        values: columns.Column
        values, (index, times) = known(told, slab.index, slab.t)
        if columns.is_array(values) or str not in map(type, values):
            _column(table, prefix + name).extend(index, columns.floats(values))
            continue
        for x, value, t in zip(index, values, columns.as_list(times), strict=True):
            _metric(figures, prefix + name, value, x, t)


def _column(table: dict[str, Column], name: str) -> Column:
    column = table.get(name)
    return table.setdefault(name if len(table) < MAX_METRICS else OVERFLOW, Column()) if column is None else column


def take_metrics(figures: Figures, values: dict[str, Any], role: str | None, step: int, t: float) -> None:
    prefix = f"{role}/" if role else ""
    for name, value in values.items():
        _metric(figures, prefix + name, value, step, t)
    latest = figures.latest
    for place in range(len(latest) - 1, max(-1, len(latest) - 1 - MAX_LATE), -1):
        if latest[place].index == step:  # logged after the step's end: it is told on that step's page, too
            own = latest[place].metrics or {}  # what an evaluation logs by the same names is none of the step's
            latest[place] = replace(latest[place], metrics={**values, **own})
            break


def _metric(figures: Figures, name: str, value: float | str, step: int, t: float) -> None:
    column = _column(figures.metrics, name)
    if isinstance(value, str):
        if value not in _NONFINITE:
            return
        value = _NONFINITE[value]
        if not column.nonfinite:
            column.digested()
        if not column.nonfinite:
            alert(figures.alerts, t, "nonfinite-loss", f"{name} is {value} at step {step}")
    column.add(step, float(value))


_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


# What lies outside the steps


def take_span(figures: Figures, span: Span) -> None:
    end = span.start + span.duration
    if span.own is None:
        span = replace(span, own=_claimed(figures, span))
    elif span.own > span.duration:  # its part would be more than the whole, and take of what was measured
        span = replace(span, own=span.duration)
    own = span.own_seconds
    wall = figures.wall
    if wall.first_step is None:
        if own > 0:
            count(wall.startup, span.name, MAX_PHASES, own)
        wall.startup_ends.append((end, own))
        if len(wall.startup_ends) > MAX_ENDS:
            del wall.startup_ends[0]
        return
    _mark(figures, span)
    if own > 0:
        count(wall.spans, span.name, MAX_PHASES, own)
        # A span around the last steps has a part of its own time before their end.
        elapsed = end - (wall.last_step or 0.0)
        wall.since_last_step = max(wall.since_last_step, min(wall.since_last_step + own, elapsed))


def _claimed(figures: Figures, span: Span) -> float:
    """What a span owns that does not tell it; of that, what lies before the first step counts as start-up at once."""
    wall, end = figures.wall, span.start + span.duration
    parts, early = figures.claims.claim(span.name, span.start, end, wall.first_step)
    if wall.first_step is None:
        return early
    if early > 0:
        count(wall.startup, span.name, MAX_PHASES, early)
    taken = seconds_in_steps(figures.timelines, parts, wall.last_step)
    return max(0.0, sum(high - low for low, high in parts) - taken)


def _give_back(figures: Figures, piece: Piece, seconds: float) -> None:
    """A step that was told after a span lay around it, or it in the step: that time is the step's."""
    table = figures.wall.startup if piece.startup else figures.wall.spans
    name = piece.name if piece.name in table else OVERFLOW
    left = table.pop(name, 0.0) - seconds
    if left > ROUNDING:
        table[name] = left
    marks = figures.marks
    for place, mark in enumerate(marks[-MAX_LATE:], max(0, len(marks) - MAX_LATE)):
        if mark.name == piece.name and mark.start <= piece.start and piece.end <= mark.start + mark.duration:
            marks[place] = replace(mark, own=max(0.0, mark.own_seconds - seconds), step=figures.last_index)


def _mark(figures: Figures, span: Span) -> None:
    """Remember a span for the timeline of steps: one outside all steps lies behind the step before it."""
    marks = figures.marks
    marks.append(span if span.step is not None else replace(span, step=figures.last_index))
    if len(marks) > MAX_MARKS:
        longest = sorted(range(len(marks)), key=lambda place: -marks[place].duration)[: MAX_MARKS // 2]
        marks[:] = [marks[place] for place in sorted(longest)]


def take_frames(figures: Figures, frames: Frames) -> None:
    table = figures.frames
    for where, place, looks in frames.rows:
        where = where if where in table or len(table) < MAX_PHASES else OVERFLOW
        count(table.setdefault(where, {}), place, MAX_PLACES, looks)


def count(table: dict[str, Any], name: str, limit: int, amount: float = 1) -> str:
    """Add to the row of that name, or to the shared one where there are too many; returns the row's name."""
    name = name if name in table or len(table) < limit else OVERFLOW
    table[name] = table.get(name, 0) + amount
    return name


def alert(alerts: list[AlertRow], t: float, code: str, text: str) -> None:
    alerts.append(AlertRow(t, code, text))
    if len(alerts) > MAX_ALERTS:
        del alerts[0]
