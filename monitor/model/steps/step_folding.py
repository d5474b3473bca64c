"""Fold steps, spans and metrics into the state of their rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from monitor.model.report import SlowStep
from monitor.model.state import (
    MAX_ALERTS,
    MAX_EARLY,
    MAX_KEPT_SLOW_STEPS,
    MAX_OPENING,
    MAX_SPAN_MARKS,
    AlertRow,
    PhaseStats,
    RankState,
)
from monitor.model.steps.baseline import OTHER_KINDS, Baseline, StepKind
from monitor.model.steps.episodes import episode_values
from monitor.model.steps.latest_steps import MAX_LATE
from monitor.model.steps.series import Column
from monitor.model.steps.span_attribution import ROUNDING, SpanPiece
from monitor.model.steps.step_intervals import seconds_in_steps
from monitor.step_blocks import Parts, StepBlock, columns_of, dense_columns, row_of, sums
from trainhooks.protocol.events import Span, Step
from trainhooks.protocol.limits import MAX_METRICS, OVERFLOW
from trainhooks.protocol.vocabulary import EPISODE_EXTREMES, EPISODE_FIGURES, EPISODES

RESTART = "restart"  # from the last step before an elastic restart to the first one after it
MAX_PHASES = 200  # names of phases and spans that get a row of their own
MAX_REASONS = 100
MAX_SKIPS = 10_000  # skipped steps kept by index: a restart may repeat them
MAX_ENDS = 500


def add_steps(rank_state: RankState, block: StepBlock, restart: int) -> None:
    """Add finished steps.

    Args:
        restart: the elastic restart that their process belongs to.
    """
    if len(block) > 1 and _crowded(rank_state, block):
        for single in block.single_blocks():
            add_steps(rank_state, single, restart)
        return
    if rank_state.begins_again and restart == rank_state.restart:
        _begin_again(rank_state, block)
    if rank_state.first_fetches.awaited and block.thread is None:
        rank_state.first_fetches.step(next(block.steps(0, 1)))
    rank_state.last_index = int(block.index[-1])
    rank_state.latest.add(block)
    if block.is_ok:
        rank_state.steps_ok += len(block)
    elif block.odd is not None:
        _skipped(rank_state, block.odd)
    if block.is_timed:  # a console step without a time is only counted
        if block.thread is None:
            _step_times(rank_state, block)
            rank_state.iterations.add_steps(block, block.parts)
        if len(rank_state.opening) < MAX_OPENING:
            rank_state.opening += block.steps(0, MAX_OPENING - len(rank_state.opening))
        groups = block.parts
        rank_state.step_seconds.extend(block.index, block.duration)
        _phases(rank_state.phases, groups, block.index)
        if block.is_ok and not block.measured:
            _judge(rank_state, block, groups)
    if block.metrics:
        _metrics(rank_state, block)


def _crowded(rank_state: RankState, block: StepBlock) -> bool:
    """Return whether names may have to share a row: values must then be added step by step."""
    phases = {name for pattern in block.patterns for name in pattern.names}
    return (
        len(rank_state.phases.keys() | phases) >= MAX_PHASES
        or len(rank_state.metrics) + len(block.metrics) >= MAX_METRICS
        or OVERFLOW in phases
        or OVERFLOW in block.metrics
    )


def _skipped(rank_state: RankState, step: Step) -> None:
    reason = count(rank_state.skipped, step.reason or "no reason given", MAX_REASONS)
    rank_state.skips.append((step.index, reason))
    if len(rank_state.skips) > MAX_SKIPS:
        del rank_state.skips[: MAX_SKIPS // 4]


# Elastic restarts


def _begin_again(rank_state: RankState, block: StepBlock) -> None:
    """Begin with the first step after a restart: repeated steps count once, and the gap becomes a span."""
    step = next(block.steps(0, 1))
    rank_state.begins_again = False
    rank_state.restarts += 1
    rank_state.iterations.restart()
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


def _step_times(rank_state: RankState, block: StepBlock) -> None:
    """Add the steps to the wall time, the pace and the counts."""
    starts, ends = block.start, block.end
    first, last = float(starts[0]), float(ends.max())
    wall = rank_state.wall
    if rank_state.claims.reach(first):
        steps = zip(starts.tolist(), ends.tolist(), strict=True)
        rank_state.claims.take_back(steps, partial(_give_back, rank_state))
    if wall.first_step is None:
        wall.first_step = first
    before = first if wall.last_step is None else wall.last_step
    if wall.warming:
        at = min(wall.warming, len(block))
        wall.warm, wall.warming = float(ends[at - 1]), wall.warming - at
    wall.last_step = last if wall.last_step is None else max(before, last)
    wall.steps = sums(wall.steps, block.duration)
    befores = np.concatenate(([before], ends[:-1]))  # when the step before ended
    if (befores > starts).any():  # some overlap: two processes of one rank
        befores = np.minimum(np.maximum.accumulate(befores), starts)
    gaps = starts - befores
    gaps[0] = max(0.0, gaps[0] - wall.since_last_step)
    rank_state.gaps.extend(block.index, gaps)
    wall.since_last_step = 0.0
    if wall.trailing:
        wall.trailing = {}
    rank_state.timelines.extend(StepKind.of(block), starts, ends, block.index)
    rank_state.pace.extend(first, ends, block.amounts, block.uncounted)
    _add_rare(rank_state, block)
    tokens = block.amounts.get("tokens")
    if tokens is not None:
        known = ~np.isnan(tokens)
        rank_state.tokens.extend(block.index[known], tokens[known])
        rank_state.pace_seconds.extend(block.index[known], (ends - befores)[known])


def _add_rare(rank_state: RankState, block: StepBlock) -> None:
    """Add what only few programs report: lengths, padding, calls of the model, other threads' phases."""
    if block.odd is not None:
        for name, seconds, _, _ in block.odd.background:
            count(rank_state.threads, name, MAX_PHASES, seconds)
        rank_state.odd_parts += block.odd.odd_parts or 0
    padded, tokens = block.amounts.get("padded_tokens"), block.amounts.get("tokens")
    if padded is not None and tokens is not None:
        known = ~(np.isnan(padded) | np.isnan(tokens))
        rank_state.padded_steps += int(known.sum())
        rank_state.padded_tokens += int(padded[known].sum())
        rank_state.unpadded_tokens += int(np.minimum(tokens, padded)[known].sum())
    if padded is not None or block.lengths is not None:
        rank_state.lengths.add(block)
    forwards, samples = block.amounts.get("forwards"), block.amounts.get("samples")
    if forwards is not None:
        rank_state.repeated_calls += int(np.nansum(forwards))
    if forwards is not None and samples is not None:  # reported only for steps with several calls
        rank_state.called_often += int((~(np.isnan(forwards) | np.isnan(samples))).sum())
        rank_state.called_singly += int(((samples == forwards) & _fed(block, forwards)).sum())


def _fed(block: StepBlock, forwards: FloatArray) -> BoolArray:
    """Return in which steps all inputs were available before the calls: fetched, or trained on one by one.

    An agent's next input depends on its last output, so these calls cannot be batched.
    """
    fed = np.zeros(len(block), bool)
    for pattern in block.patterns:
        at = slice(None) if pattern.at is None else pattern.at
        for name, counts in zip(pattern.names, pattern.counts, strict=True):
            if name == "data":
                fed[at] = True
            elif name == "backward":
                fed[at] |= counts == forwards[at]
    return fed


def _phases(table: dict[str, PhaseStats], groups: Sequence[Parts], index: IntArray) -> None:
    for name, (xs, seconds) in columns_of(groups, index).items():
        stats = table.get(name)
        if stats is None:
            clock = next((group.clocks[name] for group in groups if name in group.clocks), "host")
            stats = table.setdefault(name if len(table) < MAX_PHASES else OVERFLOW, PhaseStats(clock))
        stats.seconds.extend(xs, seconds)


def _judge(rank_state: RankState, block: StepBlock, groups: Sequence[Parts]) -> None:
    """Compare steps with the typical ones of their role and stage."""
    kind = StepKind.of(block)
    baselines = rank_state.baselines
    baseline = baselines.get(kind)
    if baseline is None:
        baseline = baselines.setdefault(kind if len(baselines) < MAX_PHASES else OTHER_KINDS, Baseline())
    slow = partial(_slow, rank_state, block, groups, baseline)
    baseline.add(block.duration, dense_columns(groups, len(block)), slow)


def _slow(rank_state: RankState, block: StepBlock, groups: Sequence[Parts], baseline: Baseline, at: int) -> None:
    typical, phases = baseline.typical_phases(), row_of(groups, at)
    culprit = max(phases, key=lambda name: phases[name] - typical.get(name, 0.0))
    duration, ended = float(block.duration[at]), float(block.t[at])
    slow = SlowStep(
        step=int(block.index[at]),
        rank=rank_state.rank,
        seconds=duration,
        baseline=baseline.typical(),
        culprit=culprit,
        phases=phases,
        usual_phases=typical,
        role=block.role,
        stage=block.stage,
        ended=ended,
    )
    rank_state.slow_count += 1
    rank_state.slow_excess += duration - slow.baseline
    rank_state.slow_steps.append(slow)
    if len(rank_state.slow_steps) > MAX_KEPT_SLOW_STEPS:
        del rank_state.slow_steps[0]
    _keep_alert(rank_state.alerts, slow_step_alert(slow, ended))


# Metrics


def _metrics(rank_state: RankState, block: StepBlock) -> None:
    table = rank_state.metrics
    prefix = f"{block.role}/" if block.role else ""
    for name, metric in block.metrics.items():
        if name in EPISODE_EXTREMES:
            continue
        index = metric.beside(block.index)
        column = _column(table, prefix + name)
        if not column.nonfinite and not np.isfinite(metric.values).all() and not column.settled().nonfinite:
            at = int(np.flatnonzero(~np.isfinite(metric.values))[0])
            t = float(metric.beside(block.t)[at])
            _nonfinite_alert(rank_state, prefix + name, float(metric.values[at]), int(index[at]), t)
        if name in EPISODE_FIGURES and EPISODES in block.metrics:
            for step in block.steps(0, len(block)):
                for value in episode_values(name, step.metrics) if name in step.metrics else ():
                    column.add(step.index, float(value))
        else:
            column.extend(index, metric.values)


def _nonfinite_alert(rank_state: RankState, name: str, value: float, step: int, t: float) -> None:
    alert(rank_state.alerts, t, "nonfinite-loss", f"{name} is {value} at step {step}")


def _column(table: dict[str, Column], name: str) -> Column:
    column = table.get(name)
    return table.setdefault(name if len(table) < MAX_METRICS else OVERFLOW, Column()) if column is None else column


def add_metrics(rank_state: RankState, values: dict[str, Any], role: str | None, step: int, t: float) -> None:
    prefix = f"{role}/" if role else ""
    for name in [name for name in values if name not in EPISODE_EXTREMES]:
        for value in episode_values(name, values):
            _metric(rank_state, prefix + name, value, step, t)
    rank_state.latest.add_metrics(values, step)


def _metric(rank_state: RankState, name: str, value: float | str, step: int, t: float) -> None:
    if isinstance(value, str) and value not in NONFINITE:
        return
    number = float(value)
    column = _column(rank_state.metrics, name)
    if not math.isfinite(number) and not column.settled().nonfinite:
        _nonfinite_alert(rank_state, name, number, step, t)
    column.add(step, number)


NONFINITE = ("nan", "inf", "-inf")


# Spans outside the steps


def add_span(rank_state: RankState, span: Span) -> None:
    end = span.start + span.duration
    if span.own is None:
        span = replace(span, own=_claimed(rank_state, span))
    elif span.own >= span.duration:  # more is invalid
        span = replace(span, own=span.duration)
        if rank_state.wall.first_step is not None:
            rank_state.claims.hold(span.name, span.start, end)
    rank_state.iterations.add_span(span, rank_state.last_index)
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
    rank_state.iterations.take_back(piece.name, seconds)
    marks = rank_state.marks
    for place, mark in enumerate(marks[-MAX_LATE:], max(0, len(marks) - MAX_LATE)):
        if mark.name == piece.name and mark.start <= piece.start and piece.end <= mark.start + mark.duration:
            marks[place] = replace(mark, own=max(0.0, mark.own_seconds - seconds), step=rank_state.last_index)


def _mark(rank_state: RankState, span: Span) -> None:
    """Remember a span for the timeline of steps: one outside all steps belongs to the step before it."""
    marks = rank_state.marks
    marks.append(span if span.step is not None else replace(span, step=rank_state.last_index))
    if len(marks) > MAX_SPAN_MARKS:
        longest = sorted(range(len(marks)), key=lambda place: -marks[place].duration)[: MAX_SPAN_MARKS // 2]
        marks[:] = [marks[place] for place in sorted(longest)]


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
