"""Make events of one thread's entries: the state machine between its lane and the journal.

Time belongs to the innermost open phase or span. Inside a step that makes phases, outside it makes spans. A span's
``own`` is its part in no step and in no inner span, so the parts of the elapsed time add up whatever the nesting.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from trainhooks.lane_entries import (
    AGGREGATE,
    AUTOMATIC,
    CANCEL,
    COUNT,
    END,
    FACTS,
    LATE,
    LOG,
    NANOSECOND,
    NEXT,
    NOTE,
    QUIT,
    RENAME,
    SKIP,
    SPAN,
    STEP,
    Lane,
    Loop,
    PhaseMarker,
)
from trainhooks.protocol.events import Note, Pulse, Span
from trainhooks.protocol.vocabulary import BETWEEN_STEPS, REWARD
from trainhooks.recording.step_annotations import OpenScope, OpenStep, PhaseTime, ProcessState, StepAnnotations
from trainhooks.recording.step_blocks import UNITS, Mapping, PlainStep, StepEvent, amounts_of, are_plain

# A step without metric, count or phase at which its loop was left counts as done if its body took at least a tenth of
# the previous one's time; less is a loop that was left at once (`if done: break`).
MAX_BODY_RATIO = 10
MAX_FOLLOWING = 64  # spans that are remembered, for one that ended before them and is told after them


class Assembler:
    """Assemble the events of one lane from its entries, one by one.

    Args:
        process: the state shared by the process's lanes.
        thread: the thread's name, as it is sent.
        is_main: whether it is the main thread.
        lane: where the entries come from; its `live` is a step that is put only at its end.

    Attributes:
        events: what was assembled; whoever sends them empties the list.
        step: the open step.
        enclosing: phases and spans around the open step, if there is one; innermost last.
        accounted_ns: nanoseconds that finished steps and spans have accounted for so far.
        accounted_until: when the last of these ended; an automatic step, begun in hindsight, begins no earlier.
        ended: name and end of the first phase of an automatic step that ended since a reader has reset this.
    """

    def __init__(self, process: ProcessState, thread: str, is_main: bool, lane: Optional[Lane] = None) -> None:
        self.process = process
        self.thread = thread
        self.is_main = is_main
        self.lane = lane
        self.events: List[StepEvent] = []
        self.annotations = StepAnnotations(process, self.events)
        self.step: Optional[OpenStep] = None
        self.enclosing: List[OpenScope] = []
        self.accounted_ns = 0
        self._newest: Deque[Tuple[int, int]] = deque(maxlen=MAX_FOLLOWING)  # begin and own time of spans
        self.accounted_until = 0
        self.ended: Optional[Tuple[str, int]] = None
        self._log_in_step = self.annotations.log_in_step
        self._count = self.annotations.count
        self._body_ns = 0  # of the last step, without the wait for its item
        self._nested: Optional[Tuple[Loop, int]] = None  # a loop inside the open step, and the phases open around it
        self._warned_nested = False
        self._left: Optional[Tuple[str, int]] = None  # the last phase or span outside of steps, and its end
        self._scored = 0  # steps in a row that began where texts had been generated
        self._held: Optional[StepEvent] = None  # the last step of a loop that was left: see `_quit`

    def add_entry(self, entry: Tuple[Any, ...]) -> None:
        """Add one entry. Phases of a step are checked first, since they are the most frequent."""
        what = entry[0]
        step = self.step
        if step is not None:
            if what is None:
                if step.open_phases:
                    phase = step.open_phases.pop()
                    t = step.give_time(phase, entry[1])
                    if phase.is_span:
                        self._leave_span_in_step(phase, t)
                    elif step.item_at is None and not step.open_phases:
                        step.item_at = t
                        self._nested = None  # a loop inside the iterable
                    return
            elif type(what) is str:
                self._enter_phase(step, what, entry[1])
                return
            elif what == LOG:
                self._log_in_step(step, entry[1])
                return
            elif type(what) is PhaseMarker:
                self._set_base_phase(step, entry[1], what.name)
                return
            elif what == COUNT:
                self._count(step, *entry[1:])
                return
        elif self._held is not None:
            if what == CANCEL and entry[2] is None:
                self.drop_held()
            else:
                self.release_held()
        handle = _TIMED.get(what)
        if handle is not None:
            handle(self, *entry[1:])
        elif what is None:
            self._leave_outside(entry[1])
        elif type(what) is str:
            self.enclosing.append(OpenScope(self.process.phase_name(what), entry[1], False, self.accounted_ns))
        elif type(what) is not PhaseMarker:
            _ANNOTATIONS[what](self.annotations, step, *entry[1:])

    @property
    def in_background(self) -> bool:
        """Return whether this lane runs beside the one whose time is the run's time."""
        primary = self.process.primary
        return primary is not self if primary is not None else not self.is_main

    def _next(self, t: int, loop: Loop, number: int) -> None:
        step = self.step
        if step is not None:
            if step.loop is loop:
                self._close_previous(step, t, number)
            elif self._nested is not None and self._nested[0] is loop:
                self._leave_nested(step, t)
        self._begin(t, loop, number)
        if self.step is not None:
            self._enter_phase(self.step, "data", t)

    def end_previous_step(self, loop: Loop, t: int, number: int) -> bool:
        """End the open step, if there is one, as step `number` of the same loop begins.

        Returns:
            False if the open step is of another loop or holds a nested one; it then stays open.
        """
        if self.step is not None:
            if self.step.loop is not loop or self._nested is not None:
                return False
            self._close_previous(self.step, t, number)
        return True

    def _close_previous(self, step: OpenStep, t: int, number: int) -> None:
        self._close_step(step, t)
        if number > step.number + 1:
            self.add_lost_steps(number - step.number - 1)

    def add_lost_steps(self, steps: int) -> None:
        """Count steps whose entries fell out of a full deque."""
        self.process.lost += steps
        self.process.steps += steps

    def add_step(self, event: StepEvent, began: int, ended: int, body_ns: int) -> None:
        """Add the event of a finished step; its index must be the next one.

        Args:
            began, ended: nanoseconds of the host clock.
            body_ns: nanoseconds from the arrival of its item.
        """
        if self._held is not None:
            self.release_held()
        self.process.steps += 1
        self.accounted_ns += ended - began
        self.accounted_until = ended
        self._body_ns = body_ns
        self.events.append(event)

    def _begin(self, t: int, loop: Loop, number: int = 0) -> None:
        if self.step is not None:
            self._begin_nested(self.step, t, loop)
            return
        if self.process.primary is None:
            self.process.primary = self
            self._split_spans(t)
        if loop is AUTOMATIC and t < self.accounted_until:
            t = self.accounted_until
        self.step = OpenStep(loop, t, number)
        # What lies between texts that were generated and the first call that learns from them, step after step.
        scored = loop is AUTOMATIC and self._left == ("generation", t)
        self._scored = self._scored + 1 if scored else 0
        if self._scored > 1 or (self._scored and self.process.steps <= 1):
            self._set_base_phase(self.step, t, REWARD)
        if number == 0:
            self.step.item_at = t  # a step that waits for no item

    def _begin_nested(self, step: OpenStep, t: int, loop: Loop) -> None:
        """Record a step inside a step as a phase of the outer one: steps do not nest."""
        if self._nested is None:
            self._nested = (loop, len(step.open_phases))
        if step.item_at is not None:  # else a loop inside the iterable: what it does is the wait for the item
            self._enter_phase(step, loop.role or "step", t)
        if not self._warned_nested:
            self._warned_nested = True
            note = Note(producer="", seq=0, t=t / NANOSECOND, level="warning", code="nested-step")
            note.text = "a step inside a step is recorded as a phase of the outer one"
            self.annotations.emit(note)

    def _leave_nested(self, step: OpenStep, t: int) -> None:
        assert self._nested is not None
        while len(step.open_phases) > self._nested[1]:
            self.add_entry((None, t))
        self._nested = None

    def _end(self, t: int, loop: Loop) -> None:
        step = self.step
        if step is None:
            return
        if step.loop is loop:
            self._close_step(step, t)
        elif self._nested is not None and self._nested[0] is loop:
            self._leave_nested(step, t)
        elif self._nested is not None and step.open_phases:  # nested deeper than once
            self.add_entry((None, t))

    def _quit(self, t: int, loop: Loop) -> None:
        """End a loop that was left by its end, a break or an exception."""
        step = self.step
        if step is None or step.loop is not loop:
            self._end(t, loop)
        elif self._did_work(step, t):
            # Later entries show whether the step was done or cut short by an exception: until then it is held back.
            self._close_step(step, t)
            self._held = self.events.pop()
        else:
            self._cancel(t, loop)

    def _did_work(self, step: OpenStep, t: int) -> bool:
        if step.item_at is None:
            return False  # its item never came
        if step.metrics or step.counts or step.deferred or step.skip_reason is not None or len(step.phases) > 1:
            return True
        return MAX_BODY_RATIO * (t - step.item_at) >= self._body_ns

    def _cancel(self, t: int, loop: Optional[Loop]) -> None:
        """Drop a step whose item never came, or that an exception ended. Without a loop: the open one of any."""
        if loop is None:
            loop = self.step.loop if self.step is not None else AUTOMATIC
        if self.step is None or self.step.loop is not loop:
            self._end(t, loop)
        else:
            if loop is AUTOMATIC and self.step.open_phases:
                self._carry_over(self.step, t)
            self.step = None
            self._nested = None

    def release_held(self) -> None:
        """Add the held-back step: the program went on after its loop was left, so it was a whole one."""
        if self._held is not None:
            self.events.append(self._held)
            self._held = None

    def drop_held(self) -> None:
        """Drop the held-back step: an exception ended the program and cut it short."""
        if self._held is not None:
            self._held = None
            self.process.steps -= 1

    def _close_step(self, step: OpenStep, t: int) -> None:
        process = self.process
        t = step.give_time(step.open_phases[-1] if step.open_phases else step.base_phase, t)
        self.step = None
        self._nested = None
        in_thread = process.primary is not self
        background: Mapping = {} if in_thread else self._take_background(step)
        shape = self.annotations.shape(
            tuple([phase.name for phase in step.phases.values()]),
            tuple([phase.count for phase in step.phases.values()]),
            step.loop,
        )
        amounts = amounts_of(step.counts)
        if step.loop is AUTOMATIC and step.skip_reason is None and (amounts is None or not any(amounts[:UNITS])):
            shape = shape._replace(uncounted=True)
        plain = PlainStep(
            shape, process.steps + 1, step.began, t, [phase.ns for phase in step.phases.values()], step.metrics, amounts
        )
        event: StepEvent = plain
        if in_thread or background or step.skip_reason is not None or not are_plain(step.metrics):
            event = {**plain.as_event(), **background}
            if in_thread:
                event["thread"] = self.thread
            if step.skip_reason is not None:
                event["status"], event["reason"] = "skipped", step.skip_reason
        for deferred in step.deferred:
            deferred.step, deferred.role = plain.number, shape.role
        self.add_step(event, step.began, t, t - (step.item_at or t))
        if step.open_phases:
            self._carry_over(step, t)

    def _carry_over(self, step: OpenStep, t: int) -> None:
        """Turn phases that are still open at the end of the step into scopes outside of it."""
        for phase in step.open_phases:
            scope = OpenScope(phase.name, phase.entered if phase.is_span else t, phase.is_span, self.accounted_ns)
            scope.since = t
            self.enclosing.append(scope)

    def _take_background(self, step: OpenStep) -> Mapping:
        """Return what other threads did since the last step; add the work that they counted to the step's."""
        process = self.process
        found: Mapping = {}
        if process.background:
            rows = process.background.items()
            found["background"] = [(name, ns / NANOSECOND, "host", count) for name, (ns, count) in rows]
            process.background = {}
        if process.counts is not None:
            counts, process.counts = process.counts, None
            for name, amount in (step.counts or {}).items():
                counts[name] = counts.get(name, 0) + amount
            step.counts = counts
        return found

    def _enter_phase(self, step: OpenStep, name: str, t: int) -> None:
        phase = step.phases.get(name)
        if phase is None:
            process = self.process
            phase = step.phases[name] = PhaseTime(process.phase_names.get(name) or process.phase_name(name))
        open_phases = step.open_phases
        t = step.give_time(open_phases[-1] if open_phases else step.base_phase, t)
        phase.count += 1
        phase.entered = t
        open_phases.append(phase)

    def _set_base_phase(self, step: OpenStep, t: int, name: Optional[str]) -> None:
        """Give an automatic step's time outside of open phases to the phase `name` from `t` on; None: to no phase."""
        if step.loop is not AUTOMATIC:
            return
        t = step.give_time(step.open_phases[-1] if step.open_phases else step.base_phase, t)
        if self.ended is None and step.base_phase is not None:
            self.ended = step.base_phase.name, t
        step.base_phase = None
        if name is not None:
            phase = step.phases.get(name)
            if phase is None:
                phase = step.phases[name] = PhaseTime(name)
            phase.count += 1
            phase.entered = t
            step.base_phase = phase

    def _span(self, t: int, name: str) -> None:
        if self.step is None:
            self.enclosing.append(OpenScope(self.process.phase_name(name), t, True, self.accounted_ns))
        else:
            self._enter_phase(self.step, name, t)
            self.step.open_phases[-1].is_span = True

    def _rename(self, name: str) -> None:
        if self.step is None and self.enclosing:
            self.enclosing[-1].name = self.process.phase_name(name)

    def _leave_span_in_step(self, phase: PhaseTime, t: int) -> None:
        """Emit a span whose time is the step's, so that checkpoints and evaluations can be listed."""
        phase.is_span = False  # a phase of the same name may follow
        self._emit_span(phase.name, phase.entered, t, own=0)

    def _leave_outside(self, t: int) -> None:
        if not self.enclosing:  # entered before a fork, or lost from a full deque
            return
        scope = self.enclosing.pop()
        self.accounted_until = t
        self._left = scope.name, t
        own = (t - scope.since) - (self.accounted_ns - scope.accounted_ns)
        # Its end may be known only after spans that followed it, as where a library's calls make a generation.
        own += sum(spent for begin, spent in self._newest if begin >= t)
        if self.step is not None:  # the open step began inside it
            own -= t - self.step.began
        own = max(0, own)
        self.accounted_ns += own
        self._newest.append((scope.start, own))
        if self.in_background and not scope.is_span:
            row = self.process.background.setdefault(scope.name, [0, 0])
            row[0] += own
            row[1] += 1
            return
        self._emit_span(scope.name, scope.start, t, own)

    def _split_spans(self, t: int) -> None:
        """Cut the open spans where the first step begins, so that start-up and the rest add up."""
        for scope in reversed(self.enclosing):
            own = max(0, (t - scope.since) - (self.accounted_ns - scope.accounted_ns))
            self.accounted_ns += own
            self._emit_span(scope.name, scope.start, t, own)
        for scope in self.enclosing:
            scope.start = scope.since = t
            scope.accounted_ns = self.accounted_ns

    def _emit_span(self, name: str, start: int, t: int, own: int) -> None:
        span = Span(producer="", seq=0, t=t / NANOSECOND, name=name)
        span.start = start / NANOSECOND
        span.duration = max(0, t - start) / NANOSECOND
        span.own = own / NANOSECOND
        span.step = self.process.steps + 1 if self.step is not None else None
        span.thread = self.thread if self.in_background else None
        self.annotations.emit(span)

    def _live_step(self) -> Optional[Tuple[int, Optional[str], int]]:
        """Return begin, phase and begin of the phase of a step under way that is put only at its end."""
        live = self.lane.live if self.lane is not None else None
        return None if live is None or self.step is not None else live.open()

    def current_phase(self) -> str:
        """Return the innermost open phase or span; `other` in a step without one, `between steps` outside."""
        live = self._live_step()
        if live is not None:
            return live[1] or "other"
        if self.step is not None:
            phase = self.step.open_phases[-1] if self.step.open_phases else self.step.base_phase
            return phase.name if phase is not None else "other"
        return self.enclosing[-1].name if self.enclosing else BETWEEN_STEPS

    def pulse(self, t: int) -> Pulse:
        """Return what is open at `t`, nanoseconds of the host clock."""
        pulse = Pulse(producer="", seq=0, t=t / NANOSECOND)
        step, live = self.step, self._live_step()
        if step is not None:
            shape = self.annotations.shape((), (), step.loop)
            pulse.role, pulse.stage = shape.role, shape.stage
            phase = step.open_phases[-1] if step.open_phases else step.base_phase
            live = (step.began, None, t) if phase is None else (step.began, phase.name, phase.entered)
        if live is not None:
            began, pulse.phase, entered = live
            pulse.step = self.process.steps + 1
            pulse.step_open = max(0, t - began) / NANOSECOND
            if pulse.phase is not None:
                pulse.phase_open = max(0, t - entered) / NANOSECOND
        pulse.spans = [(scope.name, (t - scope.start) / NANOSECOND) for scope in self.enclosing]
        return pulse


_TIMED: Dict[int, Callable[..., None]] = {
    STEP: Assembler._begin,
    NEXT: Assembler._next,
    END: Assembler._end,
    QUIT: Assembler._quit,
    CANCEL: Assembler._cancel,
    SPAN: Assembler._span,
    RENAME: Assembler._rename,
}
_ANNOTATIONS: Dict[int, Callable[..., None]] = {
    LOG: StepAnnotations.log,
    COUNT: StepAnnotations.count,
    SKIP: StepAnnotations.skip,
    NOTE: StepAnnotations.note,
    FACTS: StepAnnotations.facts,
    LATE: StepAnnotations.resolve,
    AGGREGATE: StepAnnotations.aggregate,
}
