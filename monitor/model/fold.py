"""Events folded into the state of a run: one small function a kind. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor import columns
from monitor.deltas import whole
from monitor.model.activity import Activity
from monitor.model.device_lane import Neighborhood
from monitor.model.held_back import QUIET, told
from monitor.model.ranks import RankStats
from monitor.model.state import (
    HISTORY,
    MACHINE,
    MAX_LATEST,
    MAX_NOTES,
    TREE,
    UNTOLD,
    Ending,
    Figures,
    Producer,
    RunState,
)
from monitor.model.steps import OTHER as OTHER
from monitor.model.steps import alert, take_frames, take_metrics, take_span, take_steps
from monitor.model.throttle import MAX_GPUS
from monitor.model.trend import Trend
from monitor.slab import Slab, single
from trainhooks.events import (
    PROTOCOL,
    Bye,
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
)

MAX_DEVICES = 1024  # GPUs of one run
MAX_FACTS = 2000  # of one table of facts; the hooks send far fewer
NEWER = "newer-protocol"
STOPS = ("eval", "checkpoint")  # phases of some steps that are no measure of the others
NO_ALERT = (*QUIET, "gpu-error")  # an error's alert is the recorder's own note


def fold(state: RunState, event: Event | Slab) -> None:
    """Take one event, or a slab of steps, into the state. Events of a producer come in its own order, those of a
    rank's processes one process after the other; ranks mix freely.
    """
    producer = state.producers.get(event.producer)
    if producer is None and not isinstance(event, Hello):
        # A journal without its first line: what can be read still counts.
        first = event.first if isinstance(event, Slab) else event
        begin = min(first.t, first.start or first.t) if isinstance(first, Step | Span) else first.t
        producer = _introduce(state, Hello(event.producer, 0, begin, source=UNTOLD))
    newest = columns.most(event.t) if isinstance(event, Slab) else event.t
    if producer is not None and newest > producer.last_heard:
        producer.last_heard = newest
    if state.last_event is None or newest > state.last_event:
        state.last_event = newest
    take = _FOLDS.get(type(event))
    if take is not None:
        take(state, event, producer)


# Who speaks


def _introduce(state: RunState, hello: Hello) -> Producer:
    offset = hello.wall - hello.t if hello.wall else 0.0
    times = (offset, hello.process_started, hello.t, hello.t)
    known = Producer(hello.source, hello.rank, hello.host, *times, restart=hello.restart)
    before = state.producers.get(hello.producer)
    if before is not None and before.source != UNTOLD:  # it says so again, and began when it first did
        known.wall_offset = before.wall_offset or offset
        known.process_started, known.hello, known.last_heard = before.process_started, before.hello, before.last_heard
        known.devices, known.dropped = before.devices, before.dropped
    state.producers[hello.producer] = known
    return known


def _figures(state: RunState, producer: Producer) -> Figures | None:
    """Where this producer's steps, spans and metrics go; None for one whose do not count."""
    if producer.source == "recorder":
        return None
    if producer.source == "console":
        if state.console is None:
            state.console = Figures("console", producer.rank)
        return state.console
    rank = producer.rank
    found = state.hooked.get(rank)
    if found is None and (state.lead is None or rank < state.lead):
        source = "native" if producer.source == "native" else "hooks"
        found = state.hooked[rank] = Figures(source, rank)
    return found


def _follow(state: RunState, rank: int) -> None:
    """This rank steps, and none below it does: its figures are the run's from here on, and always were."""
    state.lead = rank
    for above in [each for each in state.hooked if each > rank]:
        del state.hooked[above]


def _hello(state: RunState, hello: Hello, _: Producer | None) -> None:
    producer = _introduce(state, hello)
    if hello.protocol > PROTOCOL and not any(row.code == NEWER for row in state.alerts):
        text = f"written by a newer trainmon (protocol {hello.protocol}); update this one, or figures will be missing"
        alert(state.alerts, hello.t, NEWER, text)
    if hello.source == "recorder":
        return
    figures = _figures(state, producer)
    if figures is not None:
        figures.bye = None  # a process has come (again: an elastic restart)
        if hello.restart > figures.restart:
            figures.restart = hello.restart
            figures.begins_again = figures.stepped
            figures.pulse = None
    if hello.source == "console":
        return
    if state.name is None:
        state.name = hello.name
    state.facts = _updated(hello.facts, state.facts)


def _devices(state: RunState, facts: dict[str, Any], producer: Producer) -> None:
    """Ranks use different GPUs: the run's are all of them."""
    devices = facts.get("devices")
    if not isinstance(devices, list):
        return
    told = [uuid for uuid in devices[:MAX_DEVICES] if isinstance(uuid, str)]
    if told:
        producer.devices = told
    for uuid in told:
        if uuid not in state.devices and len(state.devices) < MAX_DEVICES:
            state.devices.append(uuid)


def _updated(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`old` with `new` laid over it, one level deep."""
    out = dict(old)
    for key, value in new.items():
        known = out.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            out[key] = _bounded(known, value)
        elif key in out or len(out) < MAX_FACTS:
            out[key] = value
    return out


def _bounded(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Both, as far as there is room for new names."""
    return {**table, **{key: value for key, value in more.items() if key in table or len(table) < MAX_FACTS}}


def _facts(state: RunState, facts: Facts, producer: Producer) -> None:
    figures = _figures(state, producer)
    if figures is not None:
        if facts.total_steps is not None:
            figures.total_steps = facts.total_steps
        # A process that follows another one begins where it says in its first step.
        if facts.start_step is not None and not figures.begins_again and not figures.restarts:
            figures.start_step = facts.start_step
    if producer.source == "console":
        state.facts = _updated(facts.facts, state.facts)
        return
    state.name = facts.name or state.name
    state.facts = _updated(state.facts, facts.facts)
    _devices(state, facts.facts, producer)


# What they tell


def _step(state: RunState, step: Step, producer: Producer) -> None:
    _steps(state, single(step), producer)


def _steps(state: RunState, slab: Slab, producer: Producer) -> None:
    if producer.source not in _NOT_RANKS:
        if state.lead is None or producer.rank < state.lead:
            _figures(state, producer)
            _follow(state, producer.rank)
        rank = state.ranks.get(producer.rank)
        if rank is None:
            rank = state.ranks[producer.rank] = RankStats()
        rank.take(slab, producer.restart)
    figures = _figures(state, producer)
    if figures is not None:
        take_steps(figures, slab, producer.restart)


_NOT_RANKS = ("recorder", "console")


def _gpu_time(state: RunState, told: GpuTime, producer: Producer) -> None:
    figures = _figures(state, producer)
    if figures is not None:
        figures.device.take(told, _neighborhood(figures, told))
        if told.seconds > 0.0:
            figures.timed.append(told)
            del figures.timed[:-MAX_LATEST]
    rank = state.ranks.get(producer.rank)
    if rank is not None:
        rank.device.take(told)


def _neighborhood(figures: Figures, told: GpuTime) -> Neighborhood:
    """What the host tells of the steps since the one that was timed before: its own producer told them before this."""
    if told.since is None:
        return Neighborhood(figures.rank, t=told.t)
    steps = [each for each in figures.latest if told.since <= each.index < told.step and each.thread is None]
    stops = sum(each.own_seconds for each in figures.marks if told.since <= (each.step or 0) < told.step)
    stops += sum(seconds for step in steps for name, seconds, _, _ in step.phases if name in STOPS)
    ended = steps[-1].start + steps[-1].duration if steps else told.t
    return Neighborhood(figures.rank, stops, tuple((each.index, each.duration) for each in steps), ended)


def _metrics(state: RunState, metrics: Metrics, producer: Producer) -> None:
    figures = _figures(state, producer)
    if figures is not None:
        step = figures.last_index if metrics.step is None else metrics.step
        take_metrics(figures, metrics.values, metrics.role, step, metrics.t)


def _span(state: RunState, span: Span, producer: Producer) -> None:
    figures = _figures(state, producer)
    if figures is not None and span.thread is None:
        take_span(figures, span)


def _pulse(state: RunState, pulse: Pulse, producer: Producer) -> None:
    producer.dropped = pulse.dropped
    figures = _figures(state, producer)
    if figures is not None and producer.restart == figures.restart:
        figures.pulse = pulse
        figures.open_step.take(pulse)


def _frames(state: RunState, frames: Frames, producer: Producer) -> None:
    figures = _figures(state, producer)
    if figures is not None:
        take_frames(figures, frames)


def _note(state: RunState, note: Note, _: Producer) -> None:
    state.notes.append(note.text)
    if len(state.notes) > MAX_NOTES:
        del state.notes[0]
    if note.level == "warning":
        alert(state.alerts, note.t, note.code or "note", note.text)


def _bye(state: RunState, bye: Bye, producer: Producer) -> None:
    producer.ended = bye.t
    producer.error = bye.error
    producer.dropped = bye.dropped
    figures = _figures(state, producer)
    if figures is not None and producer.restart == figures.restart:
        figures.bye = bye.t


def _gpu(state: RunState, gpu: Gpu, _: Producer) -> None:
    if gpu.uuid not in state.gpus and len(state.gpus) >= MAX_DEVICES:
        return
    readings = state.gpus.setdefault(gpu.uuid, [])
    gpu = whole(gpu, readings[-1] if readings else None)
    _remember(readings, gpu)
    _keep(state, gpu.uuid, gpu.t, gpu.memory_used)
    state.activity.setdefault(gpu.uuid, Activity()).add(gpu)
    for episode in state.throttles.take(gpu):
        row = told(state.throttles.gpus[gpu.uuid], episode)
        if episode.open and row.code not in NO_ALERT:
            alert(state.alerts, gpu.t, row.code, row.line())


def _host(state: RunState, host: Host, _: Producer) -> None:
    _remember(state.host, host)
    _keep(state, TREE, host.t, host.tree_rss)
    _keep(state, MACHINE, host.t, host.memory_used)


def _keep(state: RunState, what: str, t: float, used: int | None) -> None:
    if used is not None and (what in state.memory or len(state.memory) < MAX_GPUS):
        state.memory.setdefault(what, Trend()).add(t, used)


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
    Slab: _steps,
    GpuTime: _gpu_time,
    Span: _span,
    Metrics: _metrics,
    Pulse: _pulse,
    Frames: _frames,
    Note: _note,
    Bye: _bye,
    Gpu: _gpu,
    Host: _host,
    Exit: _exit,
}
