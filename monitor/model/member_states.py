"""The trainings of one process, one after another: each is folded into a state of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy, deepcopy
from dataclasses import replace

from monitor.model.group import member_of
from monitor.model.report import Member
from monitor.model.state import EndedTraining, Producer, RunState
from monitor.model.summary import make_report
from monitor.model.wall_time import RunContext
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Event, Facts, GpuTime, Metrics, Pulse, Span, Step, Trace
from trainhooks.protocol.facts import RunFacts

MAX_SETUP = 64  # facts and spans since the last step that are kept: another training's may begin with them
MAX_LATE = 64  # trainings of which lines may still be read
TAIL = (
    "eval",
    "checkpoint",
    "generation",
)  # spans after a step that belong to its training, not to the next one's setup
OWN_FACTS = ("passes", "loader_passes", "plan", "epochs", "config", "dataset", "updates", "ops", "batch")


def keep_setup(state: RunState, event: Event | StepBlock) -> None:
    """Keep what may be another training's setup: facts and spans since the last step."""
    if isinstance(event, StepBlock | Step):
        state.setup_facts.clear()
        state.setup_spans.clear()
    elif isinstance(event, Facts):
        state.setup_facts.append(event)
        del state.setup_facts[:-MAX_SETUP]
    elif isinstance(event, Span) and event.thread is None:
        state.setup_spans.append(event)
        del state.setup_spans[:-MAX_SETUP]


def begin_training(state: RunState) -> RunState:
    """End the newest training of the process, and begin another one. Return its state.

    Its setup begins with the last step of the one before, or after what was done with that one's result.
    """
    before = state.shown
    ends = [span.start + span.duration for span in state.setup_spans if span.name in TAIL]
    begin = max(ends, default=before.main.wall.last_step or state.last_event or 0.0)
    # The first one's state goes on as that of the process.
    state.ended.append(EndedTraining(deepcopy(before) if before is state else before, begin))
    for one in state.ended[:-MAX_LATE][-1:]:  # the others before it are rows already
        one.member, one.state = member_row(one), RunState()
    newest = state.newest = RunState(
        chosen=state.chosen,
        producers={
            name: replace(producer, process_started=begin, hello=begin, ended=None, error=None, place=None)
            for name, producer in state.producers.items()
        },
        name=state.name,
        facts=_facts_without(before.facts, OWN_FACTS),
        gpus={uuid: readings[-1:] for uuid, readings in state.gpus.items()},
        devices=list(state.devices),
        host=state.host[-1:],
        job_ends=state.job_ends,
        last_event=state.last_event,
        begin=begin,
        steps_before=state.main.last_index,
    )
    return newest


def setup_of(state: RunState) -> Iterable[Event]:
    """Return what the newest training's setup has told so far."""
    assert state.newest is not None and state.newest.begin is not None
    begin = state.newest.begin
    spans = [span for span in state.setup_spans if span.start >= begin]
    return sorted([*spans, *state.setup_facts], key=lambda event: event.t)


def merge_trainings(state: RunState) -> None:
    """Drop the trainings that were told apart: they were parts of one."""
    state.newest = None
    state.ended.clear()


def member_rows(state: RunState) -> list[Member]:
    """Return the trainings that ended before the newest one, as rows."""
    return [member_row(one) for one in state.ended]


def member_row(ended: EndedTraining) -> Member:
    if ended.member is None:
        report = make_report(ended.state, RunContext({}, ended.end, alive=True))
        ended.member = replace(member_of(report, ended.state), state="finished", eta_seconds=None)
    return ended.member


def training_of(state: RunState, event: Event | StepBlock, producer: Producer | None) -> RunState | None:
    """Return which training of a process with several an event is of; None: of one that is known no more.

    What a program prints is read from another journal than its steps, and so, perhaps, after the next one has begun.
    """
    newest = state.newest
    assert newest is not None
    if producer is None or producer.source != "console":
        return newest
    step, t = _step_of(event), _time_of(event)

    def is_of(training: RunState) -> bool:
        return training.steps_before < step if step is not None else (training.begin or 0.0) <= t

    if is_of(newest):
        return newest
    for one in reversed(state.ended[-MAX_LATE:]):
        if is_of(one.state):
            one.member = None
            one.state.producers.setdefault(event.producer, copy(producer))
            return one.state
    return None


def _time_of(event: Event | StepBlock) -> float:
    return float(event.t[0]) if isinstance(event, StepBlock) else event.t


def _step_of(event: Event | StepBlock) -> int | None:
    """Return the number of the step that an event is of, as far as it tells it."""
    if isinstance(event, StepBlock):
        return int(event.index[0])
    if isinstance(event, Facts):
        printed = event.facts.get("printed")
        step = printed.get("step") if isinstance(printed, dict) else None
        return step if isinstance(step, int) and step > 0 else None
    step = event.index if isinstance(event, Step) else getattr(event, "step", None)
    return step or None


def of_training(event: Event | StepBlock, before: int) -> Event | StepBlock | None:
    """Return an event with the step numbers of a training that began after so many steps; None: of an earlier one."""
    if isinstance(event, StepBlock):
        if int(event.index[0]) <= before:
            return None
        odd = None if event.odd is None else replace(event.odd, index=event.odd.index - before)
        return replace(event, index=event.index - before, odd=odd)
    if isinstance(event, Step):
        return None if event.index <= before else replace(event, index=event.index - before)
    if isinstance(event, Facts):
        total, printed = event.total_steps, _step_of(event)
        event = event if total is None else replace(event, total_steps=max(0, total - before) or None)
        if printed is None:
            return event
        row = {
            name: number - before if name in ("step", "total") and isinstance(number, int) else number
            for name, number in event.facts["printed"].items()
        }
        return replace(event, facts={**event.facts, "printed": row}) if printed > before else None
    if isinstance(event, GpuTime):
        since = event.since if event.since is None or event.since > before else None
        return (
            None
            if event.step <= before
            else replace(event, step=event.step - before, since=None if since is None else since - before)
        )
    if isinstance(event, Trace):
        return None if event.first <= before else replace(event, first=event.first - before)
    if isinstance(event, Span | Metrics | Pulse) and event.step is not None:
        return replace(event, step=event.step - before) if event.step > before else None
    return event


def _facts_without(facts: RunFacts, names: Iterable[str]) -> RunFacts:
    kept, empty = copy(facts), RunFacts()
    kept.table = {name: value for name, value in facts.table.items() if name not in names}
    for name in names:
        setattr(kept, name, getattr(empty, name))
    return kept
