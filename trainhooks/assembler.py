"""What a thread did, made into events: the small state machine between the deque and the journal.

Time belongs to the innermost open thing. Inside a step that makes phases, outside it makes spans; ``own`` of a span is
the part that lies in no step and in no inner span, so the parts of the elapsed time add up whatever the nesting.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.clocks import NANOSECOND
from trainhooks.entries import (
    AUTOMATIC,
    CANCEL,
    COUNT,
    END,
    FACTS,
    LATE,
    LOG,
    NEXT,
    NOTE,
    QUIT,
    SKIP,
    SPAN,
    STEP,
    TALLY,
    Ground,
    Loop,
)
from trainhooks.events import (
    Note,
    Pulse,
    Span,
    number,
)
from trainhooks.open_work import Open, OpenStep, Row, Shared
from trainhooks.told import Told

Mapping = Dict[str, Any]


class Assembler(Told):
    """One lane's state machine: `take` eats an entry, `events` collects what came of them."""

    def __init__(self, shared: Shared, thread: str, is_main: bool) -> None:
        super().__init__(shared)
        self.thread = thread
        self.is_main = is_main
        self.ident: Optional[int] = None  # of the thread
        self.around: List[Open] = []  # open things that the open step, if there is one, lies in
        self.accounted = 0  # nanoseconds that closed steps and spans have claimed so far
        self.claimed = 0  # up to when: an automatic step, begun in hindsight, begins no earlier
        self._body = 0  # nanoseconds of the last step without the wait for its item
        self._nested: Optional[Tuple[Loop, int]] = None  # a loop inside the open step, and the height it stands at
        self._warned_nested = False
        self._held: Optional[Mapping] = None

    def take(self, entry: Tuple[Any, ...]) -> None:
        """Take one entry. Entering and leaving a phase of a step come first: they are most of what there is."""
        what = entry[0]
        step = self.step
        if step is not None:
            if what is None:
                if step.opened:
                    row = step.opened.pop()
                    t = entry[1]
                    row.ns += t - step.mark
                    step.mark = t
                    if row.is_span:
                        self._leave_span_in_step(row, t)
                    elif step.item is None and not step.opened:
                        step.item = t
                        self._nested = None  # a loop inside the iterable
                    return
            elif type(what) is str:
                self._enter_phase(step, what, entry[1])
                return
            elif what == LOG:
                self._log_in_step(step, entry[1])
                return
            elif what == NEXT:
                self._next(entry[1], entry[2], entry[3])
                return
            elif type(what) is Ground:
                self._ground(step, entry[1], what.name)
                return
        elif self._held is not None:
            self.release_held()
        if what is None:
            self._leave_outside(entry[1])
        elif type(what) is str:
            self.around.append(Open(self.shared.phase_name(what), entry[1], False, self.accounted))
        elif type(what) is not Ground:
            _HANDLERS[what](self, *entry[1:])

    @property
    def beside(self) -> bool:
        """Whether this lane runs beside the one whose time is the run's time."""
        primary = self.shared.primary
        return primary is not self if primary is not None else not self.is_main

    # Steps

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

    def _close_previous(self, step: OpenStep, t: int, number: int) -> None:
        """The open step ends where the next one of its loop begins."""
        self._close_step(step, t)
        if number > step.number + 1:
            self._steps_lost(number - step.number - 1)

    def _steps_lost(self, steps: int) -> None:
        """Entries fell out of the full deque, and whole steps with them."""
        self.shared.lost += steps
        self.shared.steps += steps

    def _begin(self, t: int, loop: Loop, number: int = 0) -> None:
        if self.step is not None:
            self._begin_nested(self.step, t, loop)
            return
        if self.shared.primary is None:
            self.shared.primary = self
            self._split_spans(t)
        if loop is AUTOMATIC and t < self.claimed:
            t = self.claimed
        self.step = OpenStep(loop, t, number)
        if number == 0:
            self.step.item = t  # a step that waits for no item

    def _begin_nested(self, step: OpenStep, t: int, loop: Loop) -> None:
        """Steps do not nest: the inner one becomes a phase of the outer one."""
        if self._nested is None:
            self._nested = (loop, len(step.opened))
        if step.item is not None:  # else a loop inside the iterable: what it does is the wait for the item
            self._enter_phase(step, loop.role or "step", t)
        if not self._warned_nested:
            self._warned_nested = True
            text = "a step inside a step is recorded as a phase of the outer one"
            self._emit(Note("", 0, t / NANOSECOND, text=text, level="warning", code="nested-step"))

    def _leave_nested(self, step: OpenStep, t: int) -> None:
        assert self._nested is not None
        while len(step.opened) > self._nested[1]:
            self.take((None, t))
        self._nested = None

    def _end(self, t: int, loop: Loop) -> None:
        step = self.step
        if step is None:
            return
        if step.loop is loop:
            self._close_step(step, t)
        elif self._nested is not None and self._nested[0] is loop:
            self._leave_nested(step, t)
        elif self._nested is not None and step.opened:  # nested deeper than once
            self.take((None, t))

    def _quit(self, t: int, loop: Loop) -> None:
        """A loop was left: by its end, a break or an exception."""
        step = self.step
        if step is None or step.loop is not loop:
            self._end(t, loop)
        elif self._did_work(step, t):
            # Whether the step was done or an exception cut it shows in what comes next: see release_held.
            self._close_step(step, t)
            self._held = self.events.pop()
        else:
            self._cancel(t, loop)

    def _did_work(self, step: OpenStep, t: int) -> bool:
        """Whether a step whose loop was left holds work, or the loop was left at once (`if done: break`)."""
        if step.item is None:
            return False  # its item never came
        if step.metrics or step.counts or step.late or step.skipped is not None or len(step.phases) > 1:
            return True
        return 10 * (t - step.item) >= self._body

    def _cancel(self, t: int, loop: Loop) -> None:
        """The step came to nothing: its item never came, or an exception ended it."""
        if self.step is None or self.step.loop is not loop:
            self._end(t, loop)
        else:
            if loop is AUTOMATIC and self.step.opened:
                self._carry_over(self.step, t)
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

    def _close_step(self, step: OpenStep, t: int) -> None:
        shared = self.shared
        if t < step.mark:  # an automatic step's end, told in hindsight
            t = step.mark
        duration = t - step.began
        self.accounted += duration
        self.claimed = t
        if step.opened:
            self._carry_over(step, t)
        elif step.ground is not None:
            step.ground.ns += t - step.mark
        self._body = t - (step.item or t)
        self.step = None
        self._nested = None
        shared.steps += 1
        event: Mapping = {
            "kind": "step",
            "t": t / NANOSECOND,
            "index": shared.steps,
            "start": step.began / NANOSECOND,
            "duration": duration / NANOSECOND,
            "phases": [(row.name, row.ns / NANOSECOND, "host", row.times) for row in step.phases.values()],
            "status": "ok",
        }
        if shared.primary is not self:
            event["thread"] = self.thread
        elif shared.background or shared.counts is not None:
            self._add_background(event, step)
        if step.counts is not None:
            for name, amount in step.counts.items():
                if amount:
                    event[name] = amount
        if step.metrics:
            event["metrics"] = step.metrics
        if step.skipped is not None:
            event["status"] = "skipped"
            event["reason"] = step.skipped
        if step.loop.labelled:
            self._label(event, step.loop)
        for deferred in step.late:
            deferred.step = shared.steps
            deferred.role = event.get("role")
        self.events.append(event)

    def _carry_over(self, step: OpenStep, t: int) -> None:
        """What was entered in the step and outlasts it is a span from here on."""
        step.opened[-1].ns += t - step.mark
        for row in step.opened:
            entry = Open(row.name, row.entered if row.is_span else t, row.is_span, self.accounted)
            entry.since = t
            self.around.append(entry)

    def _add_background(self, event: Mapping, step: OpenStep) -> None:
        """What other threads did since the last step goes with this one."""
        shared = self.shared
        if shared.background:
            rows = shared.background.items()
            event["background"] = [(name, ns / NANOSECOND, "host", times) for name, (ns, times) in rows]
            shared.background = {}
        if shared.counts is not None:
            counts, shared.counts = shared.counts, None
            for name, amount in (step.counts or {}).items():
                counts[name] = counts.get(name, 0) + amount
            step.counts = counts

    def _label(self, event: Mapping, loop: Loop) -> None:
        if loop.role is not None:
            event["role"] = self.shared.phase_name(loop.role)
        if loop.stage is not None:
            event["stage"] = self.shared.phase_name(loop.stage)
        if loop.epoch is not None:
            event["epoch"] = number(loop.epoch)

    # Phases and spans

    def _enter_phase(self, step: OpenStep, name: str, t: int) -> None:
        row = step.phases.get(name)
        if row is None:
            row = step.phases[name] = Row(self.shared.phase_name(name))
        opened = step.opened
        if opened:
            opened[-1].ns += t - step.mark
        elif step.ground is not None:
            step.ground.ns += t - step.mark
        step.mark = t
        row.times += 1
        row.entered = t
        opened.append(row)

    def _ground(self, step: OpenStep, t: int, name: Optional[str]) -> None:
        """What an automatic step does from here on wherever no phase is open. Open ones keep their time."""
        if step.loop is not AUTOMATIC:
            return
        holder = step.opened[-1] if step.opened else step.ground
        if holder is not None:
            holder.ns += t - step.mark
        step.mark = t
        step.ground = None
        if name is not None:
            row = step.phases.get(name)
            if row is None:
                row = step.phases[name] = Row(name)
            row.times += 1
            row.entered = t
            step.ground = row

    def _span(self, t: int, name: str) -> None:
        if self.step is None:
            self.around.append(Open(self.shared.phase_name(name), t, True, self.accounted))
        else:
            self._enter_phase(self.step, name, t)
            self.step.opened[-1].is_span = True

    def _leave_span_in_step(self, row: Row, t: int) -> None:
        """Its time is the step's; it is told apart so that checkpoints and evaluations can be listed."""
        row.is_span = False  # a phase of that name may come, too
        self._emit_span(row.name, row.entered, t, own=0)

    def _leave_outside(self, t: int) -> None:
        if not self.around:  # entered before a fork, or lost from a full deque
            return
        top = self.around.pop()
        self.claimed = t
        own = (t - top.since) - (self.accounted - top.accounted)
        if self.step is not None:  # it surrounded the open step's begin
            own -= t - self.step.began
        own = max(0, own)
        self.accounted += own
        if self.beside and not top.is_span:
            row = self.shared.background.setdefault(top.name, [0, 0])
            row[0] += own
            row[1] += 1
            return
        self._emit_span(top.name, top.start, t, own)

    def _split_spans(self, t: int) -> None:
        """The first step begins inside these spans: cut them here, so that start-up and the rest add up."""
        for entry in reversed(self.around):
            own = max(0, (t - entry.since) - (self.accounted - entry.accounted))
            self.accounted += own
            self._emit_span(entry.name, entry.start, t, own)
        for entry in self.around:
            entry.start = entry.since = t
            entry.accounted = self.accounted

    def _emit_span(self, name: str, start: int, t: int, own: int) -> None:
        span = Span("", 0, t / NANOSECOND, name=name)
        span.start = start / NANOSECOND
        span.duration = (t - start) / NANOSECOND
        span.own = own / NANOSECOND
        span.step = self.shared.steps + 1 if self.step is not None else None
        span.thread = self.thread if self.beside else None
        self._emit(span)

    # What is open

    def where(self) -> str:
        """What is open: a phase's or a span's name, `other` in a step without one, `between steps`."""
        if self.step is not None:
            row = self.step.opened[-1] if self.step.opened else self.step.ground
            return row.name if row is not None else "other"
        return self.around[-1].name if self.around else "between steps"

    def pulse(self, t: int) -> Pulse:
        """What is open at `t`, for those who watch."""
        pulse = Pulse("", 0, t / NANOSECOND)
        step = self.step
        if step is not None:
            pulse.step = self.shared.steps + 1
            pulse.step_open = (t - step.began) / NANOSECOND
            labels: Mapping = {}
            self._label(labels, step.loop)
            pulse.role, pulse.stage = labels.get("role"), labels.get("stage")
            row = step.opened[-1] if step.opened else step.ground
            if row is not None:
                pulse.phase = row.name
                pulse.phase_open = (t - row.entered) / NANOSECOND
        pulse.spans = [(entry.name, (t - entry.start) / NANOSECOND) for entry in self.around]
        return pulse


_HANDLERS: Dict[int, Callable[..., None]] = {
    STEP: Assembler._begin,
    NEXT: Assembler._next,
    END: Assembler._end,
    QUIT: Assembler._quit,
    CANCEL: Assembler._cancel,
    SPAN: Assembler._span,
    LOG: Assembler._log,
    COUNT: Assembler._count,
    SKIP: Assembler._skip,
    NOTE: Assembler._note,
    FACTS: Assembler._facts,
    LATE: Assembler._late,
    TALLY: Assembler._tally,
}
