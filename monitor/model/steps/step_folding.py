"""Fold steps, spans and metrics into the state of their rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from monitor import step_columns
from monitor.model.report import SlowStep
from monitor.model.state import (
    MAX_ALERTS,
    MAX_EARLY,
    MAX_LATEST,
    MAX_MARKS,
    MAX_OPENING,
    MAX_SLOW_STEPS,
    AlertRow,
    PhaseStats,
    RankState,
)
from monitor.model.steps.baseline import OTHER_KINDS, Baseline, StepKind
from monitor.model.steps.series import Column
from monitor.model.steps.step_intervals import ROUNDING, SpanPiece, seconds_in_steps
from monitor.step_columns import Parts, StepBatch, append_all, columns_of, known, parts_of, rows_of
from trainhooks.protocol.events import Frames, Span, Step
from trainhooks.protocol.limits import MAX_METRICS, OVERFLOW

RESTART = "restart"  # from the last step before an elastic restart to the first one after it
MAX_PHASES = 200  # names of phases and spans that get a row of their own
MAX_REASONS = 100
MAX_SKIPS = 10_000  # skipped steps kept by index: a restart may repeat them
MAX_ENDS = 500
MAX_LATE = 8  # steps back to which a metric may still belong that was logged after its step's end
MAX_PLACES = 200  # places of stack samples in each phase


def take_steps(rank_state: RankState, batch: StepBatch, restart: int) -> None:
    """Take finished steps that are alike.

    Args:
        restart: the elastic restart that their process belongs to.
    """
    if len(batch) > 1 and _crowded(rank_state, batch):
        for single in batch.singles():
            take_steps(rank_state, single, restart)
        return
    first = batch.first
    if rank_state.begins_again and restart == rank_state.restart:
        _begin_again(rank_state, first)
    if rank_state.first_fetches.awaited and first.thread is None:
        rank_state.first_fetches.step(first)
    rank_state.last_index = batch.index[-1]
    append_all(rank_state.latest, len(batch), batch.steps, 2 * MAX_LATEST, MAX_LATEST)
    if first.status == "ok":
        rank_state.steps_ok += len(batch)
    else:
        _skipped(rank_state, batch)
    if first.duration > 0.0:  # 0 means unknown: a console step without a time is only counted
        if first.thread is None:
            _step_times(rank_state, batch)
        if len(rank_state.opening) < MAX_OPENING:
            rank_state.opening += batch.steps(0, MAX_OPENING - len(rank_state.opening))
        groups = parts_of(batch)
        rank_state.step_seconds.extend(batch.index, batch.duration)
        _phases(rank_state.phases, groups, batch.index)
        if first.status == "ok":
            _judge(rank_state, batch, groups)
    if batch.metrics:
        _metrics(rank_state, batch)


def _crowded(rank_state: RankState, batch: StepBatch) -> bool:
    """Return whether names may have to share a row: values must then be added step by step."""
    phases = {name for pattern in batch.phases for name in pattern.names}
    return (
        len(rank_state.phases.keys() | phases) >= MAX_PHASES
        or len(rank_state.metrics) + len(batch.metrics) >= MAX_METRICS
        or OVERFLOW in phases
        or OVERFLOW in batch.metrics
    )


def _skipped(rank_state: RankState, batch: StepBatch) -> None:
    for step in batch.rows:
        reason = count(rank_state.skipped, step.reason or "no reason given", MAX_REASONS)
        rank_state.skips.append((step.index, reason))
        if len(rank_state.skips) > MAX_SKIPS:
            del rank_state.skips[: MAX_SKIPS // 4]


# Elastic restarts


def _begin_again(rank_state: RankState, step: Step) -> None:
    """Take the first step after a restart: repeated steps count once, and the gap becomes a span."""
    rank_state.begins_again = False
    rank_state.restarts += 1
    again = max(0, rank_state.last_index - step.index + 1)
    undone = min(again, rank_state.steps_ok + sum(rank_state.skipped.values()))
    rank_state.steps_again += undone
    _take_back(rank_state, step.index, undone)
    rank_state.start_step = max(0, min(rank_state.start_step, step.index - 1))
    for baseline in rank_state.baselines.values():
        baseline.warm_up()
    wall = rank_state.wall
    if wall.last_step is not None:
        unnamed = step.start - wall.last_step - wall.since_last_step
        if unnamed > 0:
            count(wall.spans, RESTART, MAX_PHASES, unnamed)
    text = f"restart {rank_state.restart}: rank {rank_state.rank} began again at step {step.index}"
    if undone:
        text += f"; {undone:,} {'step' if undone == 1 else 'steps'} repeated"
    alert(rank_state.alerts, step.t, RESTART, text)


def _take_back(rank_state: RankState, first: int, undone: int) -> None:
    """Remove the last `undone` steps, from number `first` on, from the counts: they are done again."""
    while rank_state.skips and rank_state.skips[-1][0] >= first and undone > 0:
        _, reason = rank_state.skips.pop()
        rank_state.skipped[reason] -= 1
        if not rank_state.skipped[reason]:
            del rank_state.skipped[reason]
        undone -= 1
    rank_state.steps_ok = max(0, rank_state.steps_ok - undone)


# Steps


def _step_times(rank_state: RankState, batch: StepBatch) -> None:
    """Add the steps to the wall time, the pace and the counts."""
    starts, ends = batch.start, step_columns.plus(batch.start, batch.duration)
    first, last = batch.first.start, step_columns.most(ends)
    wall = rank_state.wall
    if rank_state.claims.reach(first):
        steps = zip(step_columns.as_list(starts), step_columns.as_list(ends), strict=True)
        rank_state.claims.take_back(steps, partial(_give_back, rank_state))
    if wall.first_step is None:
        wall.first_step = first
    before = first if wall.last_step is None else wall.last_step
    if wall.warming:
        at = min(wall.warming, len(batch))
        wall.warm, wall.warming = float(ends[at - 1]), wall.warming - at
    wall.last_step = last if wall.last_step is None else max(before, last)
    wall.steps = step_columns.total(batch.duration, wall.steps)
    befores = step_columns.before(ends, before)  # when the step before ended
    if step_columns.exceeds(befores, starts):  # some overlap: two processes of one rank
        befores = list(map(min, accumulate(step_columns.as_list(befores), max), step_columns.as_list(starts)))
        starts, ends = step_columns.as_list(starts), step_columns.as_list(ends)
    gaps = step_columns.minus(starts, befores)
    gaps[0] = max(0.0, gaps[0] - wall.since_last_step)
    rank_state.gaps.extend(batch.index, gaps)
    wall.since_last_step = 0.0
    if wall.trailing:
        wall.trailing = {}
    times = step_columns.as_list(ends)
    rank_state.timelines.extend(StepKind.of(batch.first), step_columns.as_list(starts), times, batch.index)
    rank_state.pace.extend(
        first, times, _amounts(batch.tokens, batch), _amounts(batch.samples, batch), _uncounted(batch)
    )
    if batch.rare:
        _rare(rank_state, batch)
    if batch.tokens is not None:
        taken = step_columns.minus(ends, befores)
        tokens, (index, seconds) = known(batch.tokens, batch.index, taken)
        rank_state.tokens.extend(index, step_columns.floats(tokens))
        rank_state.pace_seconds.extend(index, seconds)


def _amounts(column: step_columns.Column | None, batch: StepBatch) -> step_columns.Column:
    if column is None:
        return [0] * len(batch)
    return column if step_columns.is_array(column) else [amount or 0 for amount in column]


def _uncounted(batch: StepBatch) -> list[bool]:
    return [step.uncounted is True for step in batch.rows] if batch.rare else []


def _rare(rank_state: RankState, batch: StepBatch) -> None:
    """Take what only few programs report: lengths, padding, calls of the model, other threads' phases."""
    for step in batch.rows:
        for name, seconds, _, _ in step.background:
            count(rank_state.threads, name, MAX_PHASES, seconds)
        rank_state.odd_parts += step.odd_parts or 0
        if step.tokens is not None and step.padded_tokens is not None:
            rank_state.padded_steps += 1
            rank_state.padded_tokens += step.padded_tokens
            rank_state.unpadded_tokens += min(step.tokens, step.padded_tokens)
        if step.padded_tokens is not None or step.lengths is not None:
            rank_state.lengths.take(step)
        if step.forwards is not None and step.samples is not None:  # reported only for steps with several calls
            rank_state.called_often += 1
            rank_state.called_singly += step.samples == step.forwards and _fed(step)


def _fed(step: Step) -> bool:
    """Return whether all inputs were available before the calls: fetched, or trained on one by one.

    An agent's next input depends on its last output, so these calls cannot be batched.
    """
    return any(name == "data" or (name == "backward" and times == step.forwards) for name, _, _, times in step.phases)


def _phases(table: dict[str, PhaseStats], groups: list[Parts], index: Sequence[int]) -> None:
    for name, (xs, seconds) in columns_of(groups, index).items():
        stats = table.get(name)
        if stats is None:
            clock = next((group.clocks[name] for group in groups if name in group.clocks), "host")
            stats = table.setdefault(name if len(table) < MAX_PHASES else OVERFLOW, PhaseStats(clock))
        stats.seconds.extend(xs, seconds)


def _judge(rank_state: RankState, batch: StepBatch, groups: list[Parts]) -> None:
    """Compare steps with the typical ones of their role and stage."""
    kind = StepKind.of(batch.first)
    baselines = rank_state.baselines
    baseline = baselines.get(kind)
    if baseline is None:
        baseline = baselines.setdefault(kind if len(baselines) < MAX_PHASES else OTHER_KINDS, Baseline())
    known_baseline = baseline

    def slow(at: int) -> None:
        _slow(rank_state, batch, at, rows_of(groups, at, at + 1)[0], known_baseline)

    baseline.take(batch.duration, partial(rows_of, groups), slow)


def _slow(rank_state: RankState, batch: StepBatch, at: int, phases: dict[str, float], baseline: Baseline) -> None:
    typical = baseline.typical_phases()
    culprit = max(phases, key=lambda name: phases[name] - typical.get(name, 0.0))
    duration, ended, first = float(batch.duration[at]), float(batch.t[at]), batch.first
    slow = SlowStep(
        step=batch.index[at],
        rank=rank_state.rank,
        seconds=duration,
        baseline=baseline.typical(),
        culprit=culprit,
        phases=phases,
        usual_phases=typical,
        role=first.role,
        stage=first.stage,
        ended=ended,
    )
    rank_state.slow_count += 1
    rank_state.slow_excess += duration - slow.baseline
    rank_state.slow_steps.append(slow)
    if len(rank_state.slow_steps) > MAX_SLOW_STEPS:
        del rank_state.slow_steps[0]
    _keep_alert(rank_state.alerts, slow_step_alert(slow, ended))


# Metrics


def _metrics(rank_state: RankState, batch: StepBatch) -> None:
    role, table = batch.first.role, rank_state.metrics
    prefix = f"{role}/" if role else ""
    for name, column in batch.metrics.items():
        values: step_columns.Column
        values, (index, times) = known(column, batch.index, batch.t)
        if step_columns.is_array(values) or str not in map(type, values):
            _column(table, prefix + name).extend(index, step_columns.floats(values))
            continue
        for x, value, t in zip(index, values, step_columns.as_list(times), strict=True):
            _metric(rank_state, prefix + name, value, x, t)


def _column(table: dict[str, Column], name: str) -> Column:
    column = table.get(name)
    return table.setdefault(name if len(table) < MAX_METRICS else OVERFLOW, Column()) if column is None else column


def take_metrics(rank_state: RankState, values: dict[str, Any], role: str | None, step: int, t: float) -> None:
    prefix = f"{role}/" if role else ""
    for name, value in values.items():
        _metric(rank_state, prefix + name, value, step, t)
    latest = rank_state.latest
    for place in range(len(latest) - 1, max(-1, len(latest) - 1 - MAX_LATE), -1):
        if latest[place].index == step:  # logged after the step's end: it is shown on that step's page too
            own = latest[place].metrics or {}  # an evaluation may log other values by the same names
            latest[place] = replace(latest[place], metrics={**values, **own})
            break


def _metric(rank_state: RankState, name: str, value: float | str, step: int, t: float) -> None:
    column = _column(rank_state.metrics, name)
    if isinstance(value, str):
        if value not in _NONFINITE:
            return
        value = _NONFINITE[value]
        if not column.nonfinite:
            column.digested()
        if not column.nonfinite:
            alert(rank_state.alerts, t, "nonfinite-loss", f"{name} is {value} at step {step}")
    column.add(step, float(value))


_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


# Spans outside the steps


def take_span(rank_state: RankState, span: Span) -> None:
    end = span.start + span.duration
    if span.own is None:
        span = replace(span, own=_claimed(rank_state, span))
    elif span.own > span.duration:  # invalid: its own time cannot exceed its duration
        span = replace(span, own=span.duration)
    own = span.own_seconds
    wall = rank_state.wall
    if wall.first_step is None:
        if own > 0:
            count(wall.startup, span.name, MAX_PHASES, own)
        wall.startup_ends.append((end, own))
        wall.early = [*wall.early[1 - MAX_EARLY :], span]
        if len(wall.startup_ends) > MAX_ENDS:
            del wall.startup_ends[0]
        return
    _mark(rank_state, span)
    if own > 0:
        name = count(wall.spans, span.name, MAX_PHASES, own)
        if wall.last_step is not None and span.start >= wall.last_step:
            count(wall.trailing, name, MAX_PHASES, own)
        # A span around the last steps has a part of its own time before their end.
        elapsed = end - (wall.last_step or 0.0)
        wall.since_last_step = max(wall.since_last_step, min(wall.since_last_step + own, elapsed))


def _claimed(rank_state: RankState, span: Span) -> float:
    """Return the own time of a span that does not report it; the part before the first step goes to start-up."""
    wall, end = rank_state.wall, span.start + span.duration
    parts, early = rank_state.claims.claim(span.name, span.start, end, wall.first_step)
    if wall.first_step is None:
        return early
    if early > 0:
        count(wall.startup, span.name, MAX_PHASES, early)
    taken = seconds_in_steps(rank_state.timelines, parts, wall.last_step)
    return max(0.0, sum(high - low for low, high in parts) - taken)


def _give_back(rank_state: RankState, piece: SpanPiece, seconds: float) -> None:
    """Give a span's time back to a step that was reported after it and overlaps it."""
    table = rank_state.wall.startup if piece.startup else rank_state.wall.spans
    name = piece.name if piece.name in table else OVERFLOW
    left = table.pop(name, 0.0) - seconds
    if left > ROUNDING:
        table[name] = left
    marks = rank_state.marks
    for place, mark in enumerate(marks[-MAX_LATE:], max(0, len(marks) - MAX_LATE)):
        if mark.name == piece.name and mark.start <= piece.start and piece.end <= mark.start + mark.duration:
            marks[place] = replace(mark, own=max(0.0, mark.own_seconds - seconds), step=rank_state.last_index)


def _mark(rank_state: RankState, span: Span) -> None:
    """Remember a span for the timeline of steps: one outside all steps belongs to the step before it."""
    marks = rank_state.marks
    marks.append(span if span.step is not None else replace(span, step=rank_state.last_index))
    if len(marks) > MAX_MARKS:
        longest = sorted(range(len(marks)), key=lambda place: -marks[place].duration)[: MAX_MARKS // 2]
        marks[:] = [marks[place] for place in sorted(longest)]


def take_frames(rank_state: RankState, frames: Frames) -> None:
    rank_state.samples.take(frames)
    table = rank_state.frames
    for where, place, looks in frames.rows:
        where = where if where in table or len(table) < MAX_PHASES else OVERFLOW
        count(table.setdefault(where, {}), place, MAX_PLACES, looks)


def count(table: dict[str, Any], name: str, limit: int, amount: float = 1) -> str:
    """Add to the row of that name, or to the shared one where there are too many; returns the row's name."""
    name = name if name in table or len(table) < limit else OVERFLOW
    table[name] = table.get(name, 0) + amount
    return name


def alert(alerts: list[AlertRow], t: float, code: str, text: str) -> None:
    _keep_alert(alerts, AlertRow(t, code, text))


def slow_step_alert(slow: SlowStep, t: float) -> AlertRow:
    """Return the alert that reports this slow step, which ended at `t`."""
    return AlertRow(t, "slow-steps", str(slow), slow.step, slow.rank)


def _keep_alert(alerts: list[AlertRow], row: AlertRow) -> None:
    alerts.append(row)
    if len(alerts) > MAX_ALERTS:
        del alerts[0]
