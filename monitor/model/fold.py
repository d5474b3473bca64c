"""Fold events into the state of a run: one small function for each kind of event. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor import run_facts
from monitor.arrays import FloatArray
from monitor.gpu_lines import complete
from monitor.hooks_reach import NOT_LOADED
from monitor.model.device.device_steps import HostContext
from monitor.model.device.gpu_activity import Activity
from monitor.model.device.throttle_watch import MAX_WATCHED_GPUS, QUIET, throttle_event
from monitor.model.member_states import begin_training, keep_setup, merge_trainings, of_training, setup_of, training_of
from monitor.model.ranks.arrivals import MANY_RANKS, MAX_WINDOWS
from monitor.model.ranks.rank_waits import RankStats, RoleWork
from monitor.model.state import (
    MACHINE,
    MAX_READINGS,
    MAX_RUN_NOTES,
    OTHER_PROCESSES,
    TRAINERS,
    TREE,
    UNKNOWN_SOURCE,
    Ending,
    Held,
    Producer,
    RankState,
    RunState,
)
from monitor.model.steps.latest_steps import MAX_LATEST
from monitor.model.steps.step_folding import MAX_PHASES, add_metrics, add_span, add_steps, alert, count
from monitor.model.trend import Trend
from monitor.step_blocks import StepBlock, block_of
from trainhooks.protocol.events import (
    ASKED,
    PROTOCOL,
    Bye,
    Collectives,
    Event,
    Exit,
    Facts,
    Frames,
    Gpu,
    GpuTime,
    Hello,
    Host,
    Metrics,
    Note,
    Pulse,
    Span,
    Step,
    Trace,
)
from trainhooks.protocol.vocabulary import ACTOR

MAX_DEVICES = 1024  # GPUs of one run
MAX_TRACED_PARTS = 64  # phases of a rank whose traces are kept
NEWER = "newer-protocol"
ROLLOUT = "rollout"  # what an actor does
STOPS = ("eval", "checkpoint")  # phases of some steps that say nothing about the others
NO_ALERT = (*QUIET, "gpu-error")  # an error's alert is the recorder's own note


def fold(state: RunState, event: Event | StepBlock) -> None:
    """Update the state by one event or a block of steps.

    Events of a producer must come in its own order, those of a rank's processes one process after the other; ranks mix
    freely.
    """
    producer = state.producers.get(event.producer)
    if producer is None and not isinstance(event, Hello):
        # A journal without its first line: what is left still counts.
        t = _first_time(event.t)
        start = _first_time(event.start) if isinstance(event, StepBlock | Step | Span) else None
        begin = min(t, start or t)
        producer = _introduce(state, Hello(producer=event.producer, seq=0, t=begin, source=UNKNOWN_SOURCE))
    newest = float(event.t.max()) if isinstance(event, StepBlock) else event.t
    if producer is not None and newest > producer.last_heard:
        producer.last_heard = newest
    if state.last_event is None or newest > state.last_event:
        state.last_event = newest
    is_process = state.begin is None  # else one of its trainings
    if is_process and producer is not None and producer.source == "hooks" and producer.rank == state.main.rank:
        _tell_apart(state, event)
    add = _FOLDS.get(type(event))
    if add is not None:
        add(state, event, producer)
    training = training_of(state, event, producer) if is_process and state.newest is not None else None
    if training is not None:
        own = of_training(event, training.steps_before)
        if own is not None:
            fold(training, own)


def _tell_apart(state: RunState, event: Event | StepBlock) -> None:
    """Begin another training of the process where it says so, with what its setup has told."""
    number = run_facts.read_own(event.facts).training.number if isinstance(event, Facts) else None
    if number == 1:
        merge_trainings(state)
    elif number is not None and state.main.stepped:
        newest = begin_training(state)
        for earlier in setup_of(state):
            fold(newest, of_training(earlier, newest.steps_before) or earlier)
    keep_setup(state, event)


def _first_time(times: FloatArray | float) -> float:
    return times if isinstance(times, float | int) else float(times[0])


def _introduce(state: RunState, hello: Hello) -> Producer:
    offset = hello.wall - hello.t if hello.wall else 0.0
    known = Producer(
        source=hello.source,
        rank=hello.rank,
        host=hello.host,
        wall_offset=offset,
        process_started=hello.process_started,
        hello=hello.t,
        last_heard=hello.t,
        restart=hello.restart,
        role=hello.role,
    )
    before = state.producers.get(hello.producer)
    if before is not None and before.source != UNKNOWN_SOURCE:  # a repeated hello: it began at the first one
        known.wall_offset = before.wall_offset or offset
        known.process_started, known.hello, known.last_heard = before.process_started, before.hello, before.last_heard
        known.devices, known.dropped, known.work = before.devices, before.dropped, before.work
    state.producers[hello.producer] = known
    return known


def _rank_state(state: RunState, producer: Producer) -> RankState | None:
    """Return the state for this producer's steps, spans and metrics; None: they do not count."""
    if producer.source in ("recorder", ACTOR):
        return None
    if producer.source == "console":
        if state.console is None:
            state.console = RankState("console", producer.rank)
        return state.console
    rank = producer.rank
    rank_state = state.hooked.get(rank)
    if rank_state is None and _may_lead(state, rank):
        source = "native" if producer.source == "native" else "hooks"
        rank_state = state.hooked[rank] = RankState(source, rank)
    return rank_state


def _may_lead(state: RunState, rank: int) -> bool:
    """Return whether this rank's figures become the run's with its first step: it is the lowest, or the chosen one."""
    return rank == state.chosen if state.chosen is not None else state.lead is None or rank < state.lead


def _set_leader(state: RunState, rank: int) -> None:
    """Make this rank the one whose figures are the run's: it is the lowest rank with steps, or the chosen one."""
    state.lead = rank
    for above in [higher for higher in state.hooked if higher > rank]:
        del state.hooked[above]


def _hello(state: RunState, hello: Hello, before: Producer | None) -> None:
    producer = _introduce(state, hello)
    if before is not None and before.source == ACTOR != producer.source:
        _begins_to_learn(state, producer)
    if hello.protocol > PROTOCOL and not any(row.code == NEWER for row in state.alerts):
        text = f"written by a newer trainmon (protocol {hello.protocol}); update this one or figures will be missing"
        alert(state.alerts, hello.t, NEWER, text)
    if hello.source in ("recorder", ACTOR):
        return
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        rank_state.bye = None  # a process has started, or an elastic restart
        if hello.restart > rank_state.restart:
            rank_state.restart = hello.restart
            rank_state.begins_again = rank_state.stepped
            rank_state.pulse = None
    if hello.source == "console":
        return
    if state.name is None:
        state.name = hello.name
    run_facts.complete(state.facts, hello.facts)


def _devices(state: RunState, uuids: list[str], producer: Producer) -> None:
    """Add the GPUs of this producer to those of the run: ranks use different ones."""
    if uuids:
        producer.devices = uuids[:MAX_DEVICES]
    for uuid in uuids:
        if uuid not in state.devices and len(state.devices) < MAX_DEVICES:
            state.devices.append(uuid)


def _facts(state: RunState, facts: Facts, producer: Producer) -> None:
    rank_state, known = _rank_state(state, producer), run_facts.read_own(facts.facts)
    if rank_state is not None:
        if facts.total_steps is not None:
            rank_state.total_steps = facts.total_steps
        # After a restart, the process's first step says where it begins.
        if facts.start_step is not None and not rank_state.begins_again and not rank_state.restarts:
            rank_state.start_step = facts.start_step
        rank_state.passes.take(known, rank_state.steps_ok + sum(rank_state.skipped.values()))
        rank_state.first_fetches.take(known, rank_state.stepped)
    if producer.source == ACTOR:
        run_facts.complete(state.facts, facts.facts)
        return
    if producer.source == "recorder" and known.job_left is not None:
        state.job_ends = state.shown.job_ends = facts.t + known.job_left
    if producer.source == "console":
        if rank_state is not None and known.printed is not None:
            rank_state.printed.take(known.printed, facts.t)
        settled = {name: value for name, value in facts.facts.items() if name != "printed"}
        run_facts.complete(state.facts, settled)
        return
    state.name = facts.name or state.name
    run_facts.update(state.facts, facts.facts)
    _devices(state, known.devices, producer)


def _step(state: RunState, step: Step, producer: Producer) -> None:
    _steps(state, block_of(step), producer)


def _steps(state: RunState, block: StepBlock, producer: Producer) -> None:
    if producer.source == ACTOR and producer.role is not None:
        producer.work = producer.work or RoleWork(producer.role, float(block.start[0]))
        producer.work.add_steps(block)
        return
    if producer.source == ACTOR and state.lead is None:
        producer.source = "hooks"
        _begins_to_learn(state, producer)
    if producer.source not in _NOT_RANKS:
        if producer.rank != state.lead and _may_lead(state, producer.rank):
            _rank_state(state, producer)
            _set_leader(state, producer.rank)
        rank = state.ranks.get(producer.rank)
        if rank is None:
            rank = state.ranks[producer.rank] = RankStats()
        rank.add(block, producer.restart, producer.role)
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        add_steps(rank_state, block, producer.restart)


_NOT_RANKS = ("recorder", "console", ACTOR)


def _gpu_time(state: RunState, timing: GpuTime, producer: Producer) -> None:
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        rank_state.device.add(timing, _host_context(rank_state, timing))
        if timing.seconds > 0.0:
            rank_state.timed.append(timing)
            del rank_state.timed[:-MAX_LATEST]
    rank = state.ranks.get(producer.rank)
    if rank is not None:
        rank.device.add(timing)


def _trace(state: RunState, trace: Trace, producer: Producer) -> None:
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        rank_state.trace = trace
        if trace.steps:
            rank_state.traced_parts.clear()
        for phase, _, _ in trace.parts:
            if phase in rank_state.traced_parts or len(rank_state.traced_parts) < MAX_TRACED_PARTS:
                rank_state.traced_parts[phase] = trace


def _host_context(rank_state: RankState, timing: GpuTime) -> HostContext:
    """Return the host's view of the steps since the previous timed one, which the producer reported before."""
    if timing.since is None:
        return HostContext(rank_state.rank, t=timing.t)
    steps = [
        step for step in rank_state.latest.steps() if timing.since <= step.index < timing.step and step.thread is None
    ]
    stops = sum(mark.own_seconds for mark in rank_state.marks if timing.since <= (mark.step or 0) < timing.step)
    stops += sum(seconds for step in steps for name, seconds, _, _ in step.phases if name in STOPS)
    ended = steps[-1].start + steps[-1].duration if steps else timing.t
    return HostContext(
        rank=rank_state.rank, stops=stops, host=tuple((step.index, step.duration) for step in steps), t=ended
    )


def _metrics(state: RunState, metrics: Metrics, producer: Producer) -> None:
    if producer.source == ACTOR:
        add_metrics(_acting(state), metrics.values, None, int(state.main.timelines.steps_by(metrics.t)), metrics.t)
        return
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        step = rank_state.last_index if metrics.step is None else metrics.step
        if rank_state is state.console and metrics.step is None and not step and state.main is not rank_state:
            # Lines whose numbers are no known steps: they were printed at some step of the hooks'.
            step = int(state.main.timelines.steps_by(metrics.t))
        elif rank_state.source == "console" and metrics.step is None and not step:
            # A log that numbers nothing: its values in their order, as far as one line of them goes.
            known = [rank_state.metrics[name].settled() for name in metrics.values if name in rank_state.metrics]
            step = max((column.count + column.nonfinite for column in known), default=0)
        add_metrics(rank_state, metrics.values, metrics.role, step, metrics.t)


def _acting(state: RunState) -> RankState:
    if state.acting is None:
        state.acting = RankState(ACTOR)
    return state.acting


def _begins_to_learn(state: RunState, producer: Producer) -> None:
    """Give a process that acted so far what was counted, unless others act."""
    rank_state = _rank_state(state, producer)
    if rank_state is not None and all(one.source != ACTOR for one in state.producers.values()):
        acting, state.acting = _acting(state), None
        rank_state.metrics = {**acting.metrics, **rank_state.metrics}


def _span(state: RunState, span: Span, producer: Producer) -> None:
    if producer.source == ACTOR:
        if span.name == ROLLOUT:
            acting = _acting(state)
            wall = acting.wall
            wall.first_step = min(span.start, span.start if wall.first_step is None else wall.first_step)
            wall.last_step = max(span.t, wall.last_step or span.t)
            count(acting.threads, span.name, MAX_PHASES, span.own_seconds)
        return
    rank_state = _rank_state(state, producer)
    if producer.rank in state.ranks:
        state.ranks[producer.rank].add_span(span)
    if rank_state is not None and span.thread is None:
        add_span(rank_state, span)
    elif rank_state is not None and rank_state.stepped:
        count(rank_state.threads, span.name, MAX_PHASES, span.own_seconds)


def _pulse(state: RunState, pulse: Pulse, producer: Producer) -> None:
    producer.dropped = pulse.dropped
    if producer.source not in _NOT_RANKS:  # others do not know where its training stands
        _hold(state, pulse, producer.rank)
    rank_state = _rank_state(state, producer)
    if rank_state is not None and producer.restart == rank_state.restart:
        rank_state.pulse = pulse
        rank_state.open_step.add_pulse(pulse)


MAX_GLIMPSES = 2  # pulses at another line: a loop that looks for something is there now and then


def _hold(state: RunState, pulse: Pulse, rank: int) -> None:
    """Note where the rank stands, or that it goes on."""
    if pulse.frame is None:
        state.held.pop(rank, None)
        return
    what = pulse.spans[-1][0] if pulse.spans else pulse.phase
    known = state.held.get(rank)
    is_same = known is not None and (known.step, known.what) == (pulse.step, what)
    if known is not None and is_same and (known.place == pulse.frame or known.elsewhere < MAX_GLIMPSES):
        known.elsewhere = 0 if known.place == pulse.frame else known.elsewhere + 1
        known.used += (pulse.busy or 0.0) * (pulse.t - known.t)
        known.t = pulse.t
    else:
        threads = known.threads if known is not None else []
        known = state.held[rank] = Held(pulse.frame, pulse.activity, pulse.t, pulse.t, pulse.step, what, threads)
    if pulse.threads is not None:
        known.threads = pulse.threads
    if pulse.collectives is not None:
        known.collectives = pulse.collectives


def _frames(state: RunState, frames: Frames, producer: Producer) -> None:
    rank_state = _rank_state(state, producer)
    if rank_state is not None:
        rank_state.samples.take(frames)
    if producer.rank in state.ranks and producer.source not in _NOT_RANKS:
        state.ranks[producer.rank].sampled.take(frames)


def _collectives(state: RunState, called: Collectives, producer: Producer) -> None:
    rank = state.ranks.get(producer.rank)
    if rank is not None and producer.source not in _NOT_RANKS:
        rank.calls.add(called, producer.restart, MAX_WINDOWS if len(state.ranks) < MANY_RANKS else 2)


def _note(state: RunState, note: Note, _: Producer) -> None:
    if note.code == ASKED:
        return  # for who reads the journal: a screen would fill with them
    state.notes.append(note.text)
    if len(state.notes) > MAX_RUN_NOTES:
        del state.notes[0]
    if note.code == NOT_LOADED:
        state.hooks_not_loaded = note.text
    if note.level == "warning":
        alert(state.alerts, note.t, note.code or "note", note.text)


def _bye(state: RunState, bye: Bye, producer: Producer) -> None:
    producer.ended = bye.t
    producer.error, producer.place = bye.error, bye.place
    producer.dropped = bye.dropped
    rank_state = _rank_state(state, producer)
    if rank_state is not None and producer.restart == rank_state.restart:
        rank_state.bye = bye.t


def _gpu(state: RunState, gpu: Gpu, _: Producer) -> None:
    if gpu.uuid not in state.gpus and len(state.gpus) >= MAX_DEVICES:
        return
    readings = state.gpus.setdefault(gpu.uuid, [])
    gpu = complete(gpu, readings[-1] if readings else None)
    _append_newest(readings, gpu)
    _add_memory(state, gpu.uuid, gpu.t, gpu.memory_used)
    state.activity.setdefault(gpu.uuid, Activity()).add(gpu)
    for episode in state.throttles.add_reading(gpu):
        row = throttle_event(state.throttles.gpus[gpu.uuid], episode)
        if episode.open and row.code not in NO_ALERT:
            alert(state.alerts, gpu.t, row.code, row.line())


def _host(state: RunState, host: Host, _: Producer) -> None:
    _append_newest(state.host, host)
    _add_memory(state, TREE, host.t, host.tree_rss)
    _add_memory(state, MACHINE, host.t, host.memory_used)
    if host.tree_rss is not None and host.trainers_rss is not None:
        _add_memory(state, TRAINERS, host.t, host.trainers_rss)
        _add_memory(state, OTHER_PROCESSES, host.t, max(0, host.tree_rss - host.trainers_rss))


def _add_memory(state: RunState, what: str, t: float, used: int | None) -> None:
    if used is not None and (what in state.memory or len(state.memory) < MAX_WATCHED_GPUS):
        state.memory.setdefault(what, Trend()).add(t, used)


def _append_newest(history: list[Any], reading: Any) -> None:
    history.append(reading)
    if len(history) > MAX_READINGS:
        del history[0]


def _exit(state: RunState, exit_: Exit, _: Producer) -> None:
    state.ending = Ending(exit_.exit_code, exit_.signal, exit_.t, exit_.error, exit_.place, exit_.oom_kills)


_FOLDS: dict[type, Callable[[RunState, Any, Any], None]] = {
    Hello: _hello,
    Facts: _facts,
    Step: _step,
    StepBlock: _steps,
    GpuTime: _gpu_time,
    Trace: _trace,
    Span: _span,
    Metrics: _metrics,
    Pulse: _pulse,
    Frames: _frames,
    Collectives: _collectives,
    Note: _note,
    Bye: _bye,
    Gpu: _gpu,
    Host: _host,
    Exit: _exit,
}
