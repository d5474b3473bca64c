"""What a thread did, made into events: the small state machine between the deque and the journal.

Time belongs to the innermost open thing. Inside a step that makes phases, outside it makes spans; ``own`` of a span is
the part that lies in no step and in no inner span, so the parts of the elapsed time add up whatever the nesting.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.clocks import NANOSECOND, monotonic_seconds
from trainhooks.deferred import Deferred
from trainhooks.entries import COUNT, CANCEL, END, FACTS, LATE, LOG, NEXT, NOTE, QUIT, SKIP, SPAN, STEP
from trainhooks.events import (
    MAX_INTEGER, MAX_METRICS, MAX_NAME, OVERFLOW, Event, Facts, Metrics, Note, Phase, Pulse, Span, clean, number, to_dict,
)
from trainhooks.facts import masked_config

Mapping = Dict[str, Any]


class Loop:
    """What the steps of one loop have in common; its identity tells loops apart."""

    __slots__ = ("epoch", "role", "stage")

    def __init__(self, role: Optional[str], stage: Optional[str], epoch: Optional[float]) -> None:
        self.role = role
        self.stage = stage
        self.epoch = epoch


class _Open:
    """Something entered and not yet left. `since` is where its own time outside steps begins to count."""

    __slots__ = ("accounted", "is_span", "name", "since", "start")

    def __init__(self, name: str, start: int, is_span: bool, accounted: int) -> None:
        self.name = name
        self.start = start
        self.since = start
        self.is_span = is_span
        self.accounted = accounted


class _OpenStep:
    """The step that is being done."""

    __slots__ = ("base", "began", "counts", "late", "loop", "mark", "metrics", "number", "phases", "skipped", "worked")

    def __init__(self, loop: Loop, began: int, base: int, number: int) -> None:
        self.loop = loop
        self.began = began
        self.mark = began  # up to where its time is given to phases
        self.base = base  # height of the stack when it began
        self.number = number  # its place in its own loop
        self.phases: Dict[str, List[int]] = {}
        self.metrics: Mapping = {}
        self.counts: Optional[List[int]] = None
        self.late: List[Deferred] = []
        self.worked = False  # it holds more than the wait for its item
        self.skipped: Optional[str] = None


class Shared:
    """What the lanes of one process share: the step count, the primary lane, names, work done beside it."""

    def __init__(self) -> None:
        self.steps = 0
        self.primary: Optional[Assembler] = None  # the lane whose time is the run's time: the first that steps
        self.background: Dict[str, List[int]] = {}  # phases of other threads since the primary's last step
        self.counts: Optional[List[int]] = None  # work counted by other threads, likewise
        self.lost = 0  # entries that fell out of a full deque, as far as they can be told
        self._metric_names: Dict[str, str] = {}
        self._phase_names: Dict[str, str] = {}

    def metric_name(self, name: str) -> str:
        return self._metric_names.get(name) or _known(self._metric_names, name)

    def phase_name(self, name: str) -> str:
        return self._phase_names.get(name) or _known(self._phase_names, name)


def _known(names: Dict[Any, str], name: Any) -> str:
    """`name` as it is sent: cleaned, and past the limit of names one shared bucket."""
    if len(names) >= MAX_METRICS:
        return OVERFLOW
    sent = clean(name, MAX_NAME) or "unnamed"
    names[name] = sent
    return sent


class Assembler:
    """One lane's state machine: `take` eats entries, `events` collects what came of them."""

    def __init__(self, shared: Shared, thread: str, is_main: bool) -> None:
        self.shared = shared
        self.thread = thread
        self.is_main = is_main
        self.events: List[Mapping] = []
        self.stack: List[_Open] = []
        self.step: Optional[_OpenStep] = None
        self.accounted = 0  # nanoseconds that closed steps and spans have claimed so far
        self._nested: Optional[Tuple[Loop, int]] = None  # a loop inside the open step, and the height it stands at
        self._warned_nested = False
        self._held: Optional[Mapping] = None

    def take(self, entry: Tuple[Any, ...]) -> None:
        """Digest one entry of the lane."""
        if self._held is not None:
            self.release_held()
        what = entry[0]
        if what is None:
            self._leave(entry[1])
        elif type(what) is str:
            self._enter(what, entry[1], False)
        else:
            _HANDLERS[what](self, *entry[1:])

    @property
    def beside(self) -> bool:
        """Whether this lane runs beside the one whose time is the run's time."""
        primary = self.shared.primary
        return primary is not self if primary is not None else not self.is_main

    # Steps

    def _next(self, t: int, loop: Loop, number: int) -> None:
        step = self.step
        if step is not None and step.loop is loop:
            if number > step.number + 1:  # entries fell out of the full deque, and whole steps with them
                self.shared.lost += number - step.number - 1
                self.shared.steps += number - step.number - 1
            self._close_step(t)
        elif self._nested is not None and self._nested[0] is loop:
            self._leave_down_to(self._nested[1], t)
            self._nested = None
        self._begin(t, loop, number)
        self._enter("data", t, False)
        if self.step is not None and self.step.loop is loop:
            self.step.worked = False

    def _begin(self, t: int, loop: Loop, number: int = 1) -> None:
        if self.step is not None:
            self._begin_nested(t, loop)
            return
        if self.shared.primary is None:
            self.shared.primary = self
            self._split_spans(t)
        self.step = _OpenStep(loop, t, len(self.stack), number)

    def _begin_nested(self, t: int, loop: Loop) -> None:
        """Steps do not nest: the inner one becomes a phase of the outer one."""
        if self._nested is None:
            self._nested = (loop, len(self.stack))
        self._enter(loop.role or "step", t, False)
        if not self._warned_nested:
            self._warned_nested = True
            text = "a step inside a step is recorded as a phase of the outer one"
            self._emit(Note("", 0, t / NANOSECOND, text=text, level="warning", code="nested-step"))

    def _end(self, t: int, loop: Loop) -> None:
        if self.step is not None and self.step.loop is loop:
            self._close_step(t)
        elif self._nested is not None and self._nested[0] is loop:
            self._leave_down_to(self._nested[1], t)
            self._nested = None
        elif self.step is not None:
            self._leave(t)

    def _quit(self, t: int, loop: Loop) -> None:
        """A loop was left, by its end, a break or an exception."""
        step = self.step
        if step is None or step.loop is not loop:
            self._end(t, loop)
        elif step.worked or step.skipped is not None:
            # Whether the step was done or an exception cut it shows in what comes next: see release_held.
            self._close_step(t)
            self._held = self.events.pop()
        else:
            self._cancel(t, loop)

    def _cancel(self, t: int, loop: Loop) -> None:
        """The step came to nothing: its item never came, or an exception ended it."""
        step = self.step
        if step is None or step.loop is not loop:
            self._end(t, loop)
        else:
            del self.stack[step.base :]
            self.step = None
            self._nested = None

    def release_held(self) -> None:
        """The program went on after its loop was left, so the last step was a whole one."""
        if self._held is not None:
            self.events.append(self._held)
            self._held = None

    def drop_held(self) -> None:
        """The program ended by an exception, which cut the last step short: it is not counted."""
        if self._held is not None:
            self._held = None
            self.shared.steps -= 1

    def _close_step(self, t: int) -> None:
        step, stack, shared = self.step, self.stack, self.shared
        assert step is not None
        if len(stack) > step.base:
            self._credit(step, stack[-1].name, t)
        duration = t - step.began
        self.accounted += duration
        for entry in stack[step.base :]:  # entered in the step and not yet left: from here on it is a span
            entry.since = t
            entry.accounted = self.accounted
            if not entry.is_span:
                entry.start = t
        self.step = None
        self._nested = None
        shared.steps += 1
        event: Mapping = {
            "kind": "step",
            "t": t / NANOSECOND,
            "index": shared.steps,
            "start": step.began / NANOSECOND,
            "duration": duration / NANOSECOND,
            "phases": _rows(step.phases),
            "status": "ok",
        }
        if shared.primary is not self:
            event["thread"] = self.thread
        else:
            if shared.background:
                event["background"] = _rows(shared.background)
                shared.background = {}
            if shared.counts is not None:
                step.counts = _added(step.counts, shared.counts)
                shared.counts = None
        if step.counts is not None:
            for name, total in zip(_COUNTED, step.counts):
                if total:
                    event[name] = total
        if step.metrics:
            event["metrics"] = step.metrics
        if step.skipped is not None:
            event["status"] = "skipped"
            event["reason"] = step.skipped
        self._label(event, step.loop)
        for deferred in step.late:
            deferred.step = shared.steps
            deferred.role = event.get("role")
        self.events.append(event)

    def _label(self, event: Mapping, loop: Loop) -> None:
        if loop.role is not None:
            event["role"] = self.shared.phase_name(loop.role)
        if loop.stage is not None:
            event["stage"] = self.shared.phase_name(loop.stage)
        if loop.epoch is not None:
            event["epoch"] = number(loop.epoch)

    # Phases and spans

    def _enter(self, name: str, t: int, is_span: bool) -> None:
        name = self.shared.phase_name(name)
        step = self.step
        if step is not None:
            step.worked = True
            if len(self.stack) > step.base:
                self._credit(step, self.stack[-1].name, t)
            step.mark = t
            row = step.phases.get(name)
            if row is None:
                step.phases[name] = [0, 1]
            else:
                row[1] += 1
        self.stack.append(_Open(name, t, is_span, self.accounted))

    def _leave(self, t: int) -> None:
        if not self.stack:  # entered before a fork, or lost from a full deque
            return
        step = self.step
        if step is not None and len(self.stack) > step.base:
            top = self.stack.pop()
            self._credit(step, top.name, t)
            if top.is_span:
                self._emit_span(top, t, own=0)
            return
        top = self.stack.pop()
        own = (t - top.since) - (self.accounted - top.accounted)
        if step is not None:  # it surrounded the open step's begin
            step.base = len(self.stack)
            own -= t - step.began
        if self.beside and not top.is_span:
            row = self.shared.background.setdefault(top.name, [0, 0])
            row[0] += t - top.start
            row[1] += 1
            return
        self.accounted += max(0, own)
        self._emit_span(top, t, max(0, own))

    def _leave_down_to(self, height: int, t: int) -> None:
        while len(self.stack) > height:
            self._leave(t)

    def _credit(self, step: _OpenStep, name: str, t: int) -> None:
        row = step.phases.get(name)
        if row is None:
            row = step.phases[name] = [0, 1]
        row[0] += t - step.mark
        step.mark = t

    def _split_spans(self, t: int) -> None:
        """The first step begins inside these spans: cut them here, so that start-up and the rest add up."""
        for entry in reversed(self.stack):
            own = max(0, (t - entry.since) - (self.accounted - entry.accounted))
            self.accounted += own
            self._emit_span(entry, t, own)
        for entry in self.stack:
            entry.start = entry.since = t
            entry.accounted = self.accounted
            entry.is_span = True

    def _emit_span(self, entry: _Open, t: int, own: int) -> None:
        span = Span("", 0, t / NANOSECOND, name=entry.name)
        span.start = entry.start / NANOSECOND
        span.duration = (t - entry.start) / NANOSECOND
        span.own = own / NANOSECOND
        span.step = self.shared.steps + 1 if self.step is not None else None
        span.thread = self.thread if self.beside else None
        self._emit(span)

    # What is said beside the timings

    def _log(self, metrics: Mapping) -> None:
        step = self.step
        values: Mapping = {} if step is None else step.metrics
        name_of = self.shared.metric_name
        for name, value in metrics.items():
            if type(value) is Deferred:
                value.name = name_of(name)
                if step is not None:
                    step.late.append(value)
                continue
            sent = number(value)
            if sent is not None:
                values[name_of(name)] = sent
        if step is not None:
            step.worked = True
        elif values:
            self._emit(Metrics("", 0, monotonic_seconds(), values=values))

    def _late(self, deferred: Deferred, value: Any) -> None:
        sent = number(value)
        if sent is not None:
            values = {deferred.name: sent}
            self._emit(Metrics("", 0, monotonic_seconds(), values=values, step=deferred.step, role=deferred.role))

    def _count(self, *counted: Any) -> None:
        amounts = [_amount(value) for value in counted]
        if self.step is not None:
            self.step.worked = True
            self.step.counts = _added(self.step.counts, amounts)
        else:
            self.shared.counts = _added(self.shared.counts, amounts)

    def _skip(self, reason: Any) -> None:
        if self.step is not None:
            self.step.skipped = clean(reason) or "no reason given"

    def _note(self, t: int, text: Any) -> None:
        self._emit(Note("", 0, t / NANOSECOND, text=clean(text)))

    def _facts(self, known: Mapping) -> None:
        facts = Facts("", 0, monotonic_seconds())
        if "name" in known:
            facts.name = clean(known["name"], MAX_NAME)
        facts.total_steps = _positive(known.get("total_steps"))
        start = _positive(known.get("start_step"))
        if start is not None:
            facts.start_step = start
            self.shared.steps = max(self.shared.steps, start)
        if isinstance(known.get("config"), dict):
            facts.facts = {"config": masked_config(known["config"])}
        self._emit(facts)

    def _emit(self, event: Event) -> None:
        self.events.append(to_dict(event))

    def pulse(self, t: int) -> Pulse:
        """What is open at `t`, for those who watch."""
        pulse = Pulse("", 0, t / NANOSECOND)
        step = self.step
        height = len(self.stack)
        if step is not None:
            pulse.step = self.shared.steps + 1
            pulse.step_open = (t - step.began) / NANOSECOND
            labels: Mapping = {}
            self._label(labels, step.loop)
            pulse.role, pulse.stage = labels.get("role"), labels.get("stage")
            if height > step.base:
                pulse.phase = self.stack[-1].name
                pulse.phase_open = (t - self.stack[-1].start) / NANOSECOND
            height = step.base
        pulse.spans = [(entry.name, (t - entry.start) / NANOSECOND) for entry in self.stack[:height]]
        return pulse


_HANDLERS: Dict[int, Callable[..., None]] = {
    STEP: Assembler._begin,
    NEXT: Assembler._next,
    END: Assembler._end,
    QUIT: Assembler._quit,
    CANCEL: Assembler._cancel,
    SPAN: lambda self, t, name: self._enter(name, t, True),
    LOG: Assembler._log,
    COUNT: Assembler._count,
    SKIP: Assembler._skip,
    NOTE: Assembler._note,
    FACTS: Assembler._facts,
    LATE: Assembler._late,
}

_COUNTED = ("tokens", "padded_tokens", "samples")


def _rows(phases: Dict[str, List[int]]) -> List[Phase]:
    return [(name, row[0] / NANOSECOND, "host", row[1]) for name, row in phases.items()]


def _added(counts: Optional[List[int]], more: List[int]) -> List[int]:
    return more if counts is None else [a + b for a, b in zip(counts, more)]


def _amount(value: Any) -> int:
    """What was counted: a whole number, or 0 where it is none (a count must not wait for a GPU)."""
    if type(value) is int:
        return value if 0 <= value <= MAX_INTEGER else 0
    if value is None or hasattr(value, "detach"):
        return 0
    sent = number(value)
    return int(sent) if isinstance(sent, (int, float)) and 0 <= sent <= MAX_INTEGER else 0


def _positive(value: Any) -> Optional[int]:
    return value if type(value) is int and 0 <= value <= MAX_INTEGER else None
