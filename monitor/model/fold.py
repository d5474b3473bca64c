"""Events folded into the state of a run: one small function a kind. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from monitor.model.baseline import Baseline
from monitor.model.report import SlowStep
from monitor.model.series import Column
from monitor.model.state import (
    HISTORY,
    MAX_ALERTS,
    MAX_NOTES,
    MAX_SLOW_STEPS,
    AlertRow,
    Ending,
    PhaseStats,
    Producer,
    RankStats,
    RunState,
)
from trainhooks.events import (
    MAX_METRICS,
    OVERFLOW,
    PROTOCOL,
    Bye,
    Event,
    Exit,
    Facts,
    Gpu,
    Hello,
    Host,
    Metrics,
    Note,
    Phase,
    Pulse,
    Span,
    Step,
)

OTHER = "other"  # inside a step, in no phase
MAX_PHASES = 200  # names of phases and spans that get a row of their own
MAX_REASONS = 100


def fold(state: RunState, event: Event) -> None:
    """Take one event into the state. Events of a producer come in its own order; producers mix freely."""
    producer = state.producers.get(event.producer)
    if producer is None and not isinstance(event, Hello):
        # A journal without its first line: what can be read still counts.
        producer = _introduce(state, Hello(event.producer, 0, event.t, source="unknown"))
    if producer is not None and event.t > producer.last_heard:
        producer.last_heard = event.t
    if state.last_event is None or event.t > state.last_event:
        state.last_event = event.t
    _FOLDS[type(event)](state, event, producer)


def _introduce(state: RunState, hello: Hello) -> Producer:
    offset = hello.wall - hello.t if hello.wall else 0.0
    known = Producer(hello.source, hello.rank, hello.host, offset, hello.process_started, hello.t, hello.t)
    state.producers[hello.producer] = known
    return known


def _hello(state: RunState, hello: Hello, _: Producer | None) -> None:
    _introduce(state, hello)
    if hello.protocol > PROTOCOL:
        text = f"written by a newer trainmon (protocol {hello.protocol}); update this one, or figures will be missing"
        _alert(state, hello.t, "newer-protocol", text)
    if hello.source == "recorder":
        return
    state.bye = None  # a process has come (again: an elastic restart)
    if state.name is None:
        state.name = hello.name
    state.facts = _updated(hello.facts, state.facts)


def _updated(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`old` with `new` laid over it, one level deep."""
    out = dict(old)
    for key, value in new.items():
        known = out.get(key)
        out[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return out


def _facts(state: RunState, facts: Facts, _: Producer) -> None:
    state.name = facts.name or state.name
    if facts.total_steps is not None:
        state.total_steps = facts.total_steps
    if facts.start_step is not None:
        state.start_step = facts.start_step
    state.facts = _updated(state.facts, facts.facts)


# Steps


def _step(state: RunState, step: Step, producer: Producer) -> None:
    rank = state.ranks.get(producer.rank)
    if rank is None:
        rank = state.ranks[producer.rank] = RankStats()
    rank.steps += 1
    rank.seconds.add(step.index, step.duration)
    if state.lead is None:
        state.lead = min((p.rank for p in state.producers.values() if p.source != "recorder"), default=producer.rank)
    if producer.rank != state.lead:
        return
    state.last_index = step.index
    if step.status == "ok":
        state.steps_ok += 1
    else:
        _count(state.skipped, step.reason or "no reason given", MAX_REASONS)
    if step.thread is None:
        _step_time(state, step)
    phases = _step_phases(state, step)
    _judge(state, step, phases, producer.rank)
    if step.metrics:
        prefix = f"{step.role}/" if step.role else ""
        for name, value in step.metrics.items():
            _metric(state, prefix + name, value, step.index)


def _step_time(state: RunState, step: Step) -> None:
    """The step's share of the run's own time, and what it did in it."""
    end = step.start + step.duration
    wall = state.wall
    if wall.first_step is None:
        wall.first_step = step.start
    before = wall.last_step
    if before is None or end > before:
        wall.last_step = end
    wall.steps += step.duration
    wall.since_last_step = 0.0
    state.pace.add(step.start, end, step.tokens or 0, step.samples or 0)
    if step.tokens is not None:
        state.tokens.add(step.index, step.tokens)
        state.pace_seconds.add(step.index, end - (step.start if before is None else min(before, step.start)))


def _step_phases(state: RunState, step: Step) -> dict[str, float]:
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
    state.step_seconds.add(index, duration)
    table = state.phases
    for name, seconds in phases.items():
        stats = table.get(name)
        if stats is None:
            stats = _new_phase(table, name, step.phases)
        stats.seconds.add(index, seconds)
    return phases


def _new_phase(table: dict[str, PhaseStats], name: str, rows: list[Phase]) -> PhaseStats:
    clock = next((clock for each, _, clock, _ in rows if each == name), "host")
    return table.setdefault(name if len(table) < MAX_PHASES else OVERFLOW, PhaseStats(clock))


def _judge(state: RunState, step: Step, phases: dict[str, float], rank: int) -> None:
    """Compare a step with the usual ones of its role and stage."""
    if step.status != "ok":
        return
    kind = f"{step.role or ''}\n{step.stage or ''}"
    baseline = state.baselines.get(kind)
    if baseline is None:
        baseline = state.baselines.setdefault(kind if len(state.baselines) < MAX_PHASES else OVERFLOW, Baseline())
    if baseline.unusual(step.duration):
        _slow(state, step, phases, rank, baseline)
    baseline.add(step.duration, phases)


def _slow(state: RunState, step: Step, phases: dict[str, float], rank: int, baseline: Baseline) -> None:
    usual = baseline.usual_phases()
    culprit = max(phases, key=lambda name: phases[name] - usual.get(name, 0.0))
    slow = SlowStep(
        step.index, rank, step.duration, baseline.usual(), culprit, phases, usual, role=step.role, stage=step.stage
    )
    state.slow_count += 1
    state.slow_excess += step.duration - slow.baseline
    state.slow_steps.append(slow)
    if len(state.slow_steps) > MAX_SLOW_STEPS:
        del state.slow_steps[0]
    _alert(state, step.t, "slow-steps", str(slow))


def _alert(state: RunState, t: float, code: str, text: str) -> None:
    state.alerts.append(AlertRow(t, code, text))
    if len(state.alerts) > MAX_ALERTS:
        del state.alerts[0]


def _metric(state: RunState, name: str, value: float | str, step: int) -> None:
    column = state.metrics.get(name)
    if column is None:
        column = state.metrics.setdefault(name if len(state.metrics) < MAX_METRICS else OVERFLOW, Column())
    if isinstance(value, str):
        if value not in _NONFINITE:
            return
        value = _NONFINITE[value]
        if not column.nonfinite:
            column.digested()
        if not column.nonfinite:
            _alert(state, state.last_event or 0.0, "nonfinite-loss", f"{name} is {value} at step {step}")
    column.add(step, float(value))


_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _metrics(state: RunState, metrics: Metrics, producer: Producer) -> None:
    if state.lead is not None and producer.rank != state.lead:
        return
    prefix = f"{metrics.role}/" if metrics.role else ""
    for name, value in metrics.values.items():
        _metric(state, prefix + name, value, state.last_index if metrics.step is None else metrics.step)


# What lies outside the steps


def _span(state: RunState, span: Span, producer: Producer) -> None:
    own = span.duration if span.own is None else span.own
    if span.thread is not None or (state.lead is not None and producer.rank != state.lead):
        return
    wall = state.wall
    if wall.first_step is None:
        _count(wall.startup, span.name, MAX_PHASES, own)
    elif own > 0:
        _count(wall.spans, span.name, MAX_PHASES, own)
        # A span around the last steps has a part of its own time before their end.
        elapsed = span.start + span.duration - (wall.last_step or 0.0)
        wall.since_last_step = max(wall.since_last_step, min(wall.since_last_step + own, elapsed))


def _count(table: dict[str, Any], name: str, limit: int, amount: float = 1) -> None:
    name = name if name in table or len(table) < limit else OVERFLOW
    table[name] = table.get(name, 0) + amount


def _pulse(state: RunState, pulse: Pulse, producer: Producer) -> None:
    producer.dropped = pulse.dropped
    if state.lead is None or producer.rank == state.lead:
        state.pulse = pulse


def _note(state: RunState, note: Note, _: Producer) -> None:
    state.notes.append(note.text)
    if len(state.notes) > MAX_NOTES:
        del state.notes[0]
    if note.level == "warning":
        _alert(state, note.t, note.code or "note", note.text)


def _bye(state: RunState, bye: Bye, producer: Producer) -> None:
    producer.ended = bye.t
    producer.error = bye.error
    producer.dropped = bye.dropped
    if producer.source != "recorder" and (state.lead is None or producer.rank == state.lead):
        state.bye = bye.t


def _gpu(state: RunState, gpu: Gpu, _: Producer) -> None:
    _remember(state.gpus.setdefault(gpu.uuid, []), gpu)


def _host(state: RunState, host: Host, _: Producer) -> None:
    _remember(state.host, host)


def _remember(history: list[Any], reading: Any) -> None:
    history.append(reading)
    if len(history) > HISTORY:
        del history[0]


def _exit(state: RunState, exit_: Exit, _: Producer) -> None:
    state.ending = Ending(exit_.exit_code, exit_.signal, exit_.t)


_FOLDS: dict[type, Callable[[RunState, Any, Any], None]] = {
    Hello: _hello,
    Facts: _facts,
    Step: _step,
    Span: _span,
    Metrics: _metrics,
    Pulse: _pulse,
    Note: _note,
    Bye: _bye,
    Gpu: _gpu,
    Host: _host,
    Exit: _exit,
}
