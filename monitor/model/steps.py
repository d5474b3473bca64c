"""Steps, spans and metrics taken into the figures of the rank that told them. Pure."""

from __future__ import annotations

import math
from typing import Any

from monitor.model.baseline import Baseline
from monitor.model.report import SlowStep
from monitor.model.series import Column
from monitor.model.state import MAX_ALERTS, MAX_SLOW_STEPS, AlertRow, Figures, PhaseStats
from trainhooks.events import MAX_METRICS, OVERFLOW, Frames, Phase, Span, Step

OTHER = "other"  # inside a step, in no phase
RESTART = "restart"  # from the last step before an elastic restart to the first one after it
MAX_PHASES = 200  # names of phases and spans that get a row of their own
MAX_REASONS = 100
MAX_SKIPS = 10_000  # skipped steps whose place is known, should a restart do them again
MAX_ENDS = 500
MAX_PLACES = 200  # in a program, of which the sampler tells under one name


def take_step(figures: Figures, step: Step, restart: int) -> None:
    """One finished step.

    Args:
        restart: the elastic restart that its process belongs to.
    """
    if figures.begins_again and restart == figures.restart:
        _begin_again(figures, step)
    figures.last_index = step.index
    if step.status == "ok":
        figures.steps_ok += 1
    else:
        reason = count(figures.skipped, step.reason or "no reason given", MAX_REASONS)
        figures.skips.append((step.index, reason))
        if len(figures.skips) > MAX_SKIPS:
            del figures.skips[: MAX_SKIPS // 4]
    if step.duration > 0.0:  # 0 is "not known": a step that the console told without a time counts, and that is all
        if step.thread is None:
            _step_time(figures, step)
        phases = _step_phases(figures, step)
        _judge(figures, step, phases)
    if step.metrics:
        take_metrics(figures, step.metrics, step.role, step.index, step.t)


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


def _step_time(figures: Figures, step: Step) -> None:
    """The step's share of the run's own time, and what it did in it."""
    end = step.start + step.duration
    wall = figures.wall
    if wall.first_step is None:
        wall.first_step = step.start
    before = wall.last_step
    if before is None or end > before:
        wall.last_step = end
    wall.steps += step.duration
    wall.since_last_step = 0.0
    figures.timelines.add(kind_of(step), step.start, end, step.index)
    figures.pace.add(step.start, end, step.tokens or 0, step.samples or 0)
    if step.tokens is not None and step.padded_tokens is not None:
        figures.padded_steps += 1
        figures.padded_tokens += step.padded_tokens
        figures.unpadded_tokens += min(step.tokens, step.padded_tokens)
    if step.tokens is not None:
        figures.tokens.add(step.index, step.tokens)
        figures.pace_seconds.add(step.index, end - (step.start if before is None else min(before, step.start)))


def _step_phases(figures: Figures, step: Step) -> dict[str, float]:
    """Take the step's phases into their columns; returns their seconds with `other`, in order of occurrence."""
    duration = step.duration
    phases: dict[str, float] = {}
    named = 0.0
    for name, seconds, _, _ in step.phases:
        phases[name] = phases.get(name, 0.0) + seconds if name in phases else seconds
        named += seconds
    if named > duration:  # a writer whose parts exceed the whole: scaled, so that shares stay shares
        phases = {name: seconds * duration / named for name, seconds in phases.items()}
        named = duration
    phases[OTHER] = duration - named + phases.get(OTHER, 0.0)
    index = step.index
    figures.step_seconds.add(index, duration)
    table = figures.phases
    for name, seconds in phases.items():
        stats = table.get(name)
        if stats is None:
            stats = _new_phase(table, name, step.phases)
        stats.seconds.add(index, seconds)
    return phases


def _new_phase(table: dict[str, PhaseStats], name: str, rows: list[Phase]) -> PhaseStats:
    clock = next((clock for each, _, clock, _ in rows if each == name), "host")
    return table.setdefault(name if len(table) < MAX_PHASES else OVERFLOW, PhaseStats(clock))


def _judge(figures: Figures, step: Step, phases: dict[str, float]) -> None:
    """Compare a step with the usual ones of its role and stage."""
    if step.status != "ok":
        return
    kind = kind_of(step)
    baselines = figures.baselines
    baseline = baselines.get(kind)
    if baseline is None:
        baseline = baselines.setdefault(kind if len(baselines) < MAX_PHASES else OVERFLOW, Baseline())
    if baseline.unusual(step.duration):
        _slow(figures, step, phases, baseline)
    baseline.add(step.duration, phases)


def _slow(figures: Figures, step: Step, phases: dict[str, float], baseline: Baseline) -> None:
    usual = baseline.usual_phases()
    culprit = max(phases, key=lambda name: phases[name] - usual.get(name, 0.0))
    times = (step.duration, baseline.usual())
    slow = SlowStep(step.index, figures.rank, *times, culprit, phases, usual, role=step.role, stage=step.stage)
    figures.slow_count += 1
    figures.slow_excess += step.duration - slow.baseline
    figures.slow_steps.append(slow)
    if len(figures.slow_steps) > MAX_SLOW_STEPS:
        del figures.slow_steps[0]
    alert(figures.alerts, step.t, "slow-steps", str(slow))


# Metrics


def take_metrics(figures: Figures, values: dict[str, Any], role: str | None, step: int, t: float) -> None:
    prefix = f"{role}/" if role else ""
    for name, value in values.items():
        _metric(figures, prefix + name, value, step, t)


def _metric(figures: Figures, name: str, value: float | str, step: int, t: float) -> None:
    table = figures.metrics
    column = table.get(name)
    if column is None:
        column = table.setdefault(name if len(table) < MAX_METRICS else OVERFLOW, Column())
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
    own = span.duration if span.own is None else span.own
    end = span.start + span.duration
    wall = figures.wall
    if wall.first_step is None:
        count(wall.startup, span.name, MAX_PHASES, own)
        wall.startup_ends.append((end, own))
        if len(wall.startup_ends) > MAX_ENDS:
            del wall.startup_ends[0]
    elif own > 0:
        count(wall.spans, span.name, MAX_PHASES, own)
        # A span around the last steps has a part of its own time before their end.
        elapsed = end - (wall.last_step or 0.0)
        wall.since_last_step = max(wall.since_last_step, min(wall.since_last_step + own, elapsed))


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
