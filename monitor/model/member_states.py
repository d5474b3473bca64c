"""The trainings of one process, one after another: each is folded into a state of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from monitor.model.group import member_of
from monitor.model.report import Member
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.model.wall_time import RunContext
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Event, Facts, GpuTime, Metrics, Pulse, Span, Step, Trace
from trainhooks.protocol.facts import RunFacts

MAX_SETUP = 64  # facts and spans since the last step that are kept: another training's may begin with them
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
    state.ended.append(_ended(before, begin))
    newest = state.newest = RunState(
        producers={
            name: replace(producer, process_started=begin, hello=begin, ended=None, error=None, place=None)
            for name, producer in state.producers.items()
        },
        name=state.name,
        facts=_facts_without(before.facts, OWN_FACTS),
        gpus={uuid: readings[-1:] for uuid, readings in state.gpus.items()},
        devices=list(state.devices),
        host=state.host[-1:],
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
        total = event.total_steps
        return event if total is None else replace(event, total_steps=max(0, total - before) or None)
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


def _ended(state: RunState, end: float) -> Member:
    """Return the row of a training of which another one takes the place at `end`."""
    member = member_of(make_report(state, RunContext({}, end, alive=True)), state)
    return replace(member, state="finished", eta_seconds=None)


def _facts_without(facts: RunFacts, names: Iterable[str]) -> RunFacts:
    kept, empty = copy(facts), RunFacts()
    kept.table = {name: value for name, value in facts.table.items() if name not in names}
    for name in names:
        setattr(kept, name, getattr(empty, name))
    return kept
