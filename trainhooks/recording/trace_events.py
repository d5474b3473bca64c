"""Let steps be traced, by themselves or as a person asks, and make the events of traces. In the background thread."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Tuple

from trainhooks.device.device_lane import DeviceLane
from trainhooks.lane_entries import NANOSECOND, host_clock, monotonic_seconds
from trainhooks.own_thread import release_interpreter
from trainhooks.protocol import control
from trainhooks.protocol.control import Answer, TraceRequest
from trainhooks.protocol.encoding import to_dict
from trainhooks.recording import facts
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.control_socket import Caller
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import Mapping, PlainStep, StepEvent, step_times
from trainhooks.recording.traced_file import write_events
from trainhooks.tracing import profiler
from trainhooks.tracing.trace_reading import in_slices, kernel_trace, operator_trace, part_spans
from trainhooks.tracing.tracer import OTHER_RANK, Asked, Finished, Tracer

MAX_WAIT_NS = NANOSECOND  # after the end of a trace, for what followed it
MAX_TRIES = 3  # of a trace that was asked for and held no whole step
NO_STEPS = "no step has begun in this process"
BUSY = "another trace that was asked for is not over yet"


class _Wish:
    """A trace that a person asks for, until it is over."""

    def __init__(self, request: TraceRequest, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.tries = 0
        self.steps = 0  # that it was armed for; 0: it was not armed yet
        self.number: Optional[int] = None  # once it has begun

    def end(self, status: str, *reasons: str) -> None:
        """Let the caller know how it ended, unless an answer was given before."""
        if self.number is None:
            self.caller.answer(Answer(status, [reason.partition("off: ")[2] or reason for reason in reasons]))
        self.caller.close()


class TraceEvents:
    """Ask the tracer for traces, and mark the steps that they disturb.

    Args:
        process: the state shared by the process's lanes.
        device: the lane of the device, which tells the tracer where steps begin.

    Attributes:
        events_file: where all that is recorded goes, if asked for; None where nothing can be written.
    """

    def __init__(self, process: ProcessState, device: DeviceLane) -> None:
        self.events_file: Optional[Path] = None
        self._process = process
        self._device = device
        self._tracer: Tracer = device.tracer
        self._batches: Optional[BatchAssembler] = None  # of the lane that is traced
        self._measured: Dict[int, Tuple[float, float]] = {}  # index: begin and end of a step that a trace disturbed
        self._assembled = 0.0  # the end of the newest step, while one is traced
        self._wish: Optional[_Wish] = None
        self._numbered = 0  # traces that were asked for
        self._written: Optional[Caller] = None  # waits for an event that is written with the next batch
        if facts.rank_facts().get("rank", 0):
            self._tracer.turn_off(OTHER_RANK)

    def add_request(self, request: TraceRequest, caller: Caller) -> None:
        """Take a request. Its caller is answered once the trace begins, or is refused."""
        if self._wish is None:
            self._wish = _Wish(request, caller)
        else:
            _Wish(request, caller).end(control.REFUSED, BUSY)

    def consider(self, batches: Optional[BatchAssembler]) -> None:
        """Let steps be traced if it is time to, or if somebody asks.

        Args:
            batches: of the lane that steps; None where none does.
        """
        lane = None if batches is None else batches.assembler.lane
        if self._wish is not None and not self._wish.steps:
            if batches is None or lane is None:
                self._end_wish(control.IDLE, NO_STEPS)
            elif self._batches is None:
                self._grant(self._wish, batches)
            return
        if batches is None or lane is None or self._batches is not None:
            return
        on_cuda = self._device.is_on
        if self._device.status is not None and not on_cuda:  # a GPU is used: the host's operators say little
            self._tracer.turn_off(self._device.status)
            return
        if self._tracer.is_due(on_cuda, self._process.steps):
            self._watch(batches)
            self._tracer.arm(lane, on_cuda)
            self._device.watching = True

    def _watch(self, batches: BatchAssembler) -> None:
        self._batches, batches.marks = batches, []  # before the training thread knows of it

    def _grant(self, wish: _Wish, batches: BatchAssembler) -> None:
        """Arm the trace that is asked for, unless something speaks against it."""
        on_cuda, request = self._device.is_on, wish.request
        why = self._tracer.why_refused(on_cuda)
        doubts = [] if request.anyway else self._tracer.doubts(batches.assembler.lane, on_cuda)  # type: ignore[arg-type]
        if why is not None or wish.caller.is_gone:
            self._end_wish(control.REFUSED, why or "")
        elif doubts:
            self._end_wish(control.DOUBTFUL, *doubts)
        else:
            self._watch(batches)
            asked = Asked(request.steps, request.anyway)
            wish.steps = self._tracer.ask(batches.assembler.lane, on_cuda, asked)  # type: ignore[arg-type]
            self._device.watching = True

    def _end_wish(self, status: str, *reasons: str) -> None:
        if self._wish is not None:
            self._wish.end(status, *reasons)
            self._wish = None

    def _follow_wish(self, wish: _Wish) -> None:
        """Answer once the trace has begun; drop it where nobody waits for it before."""
        if self._tracer.has_begun:
            if wish.number is None:
                self._numbered += 1
                wish.number = self._numbered
                wish.caller.answer(Answer(control.ACCEPTED, trace=wish.number, steps=wish.steps))
        elif wish.caller.is_gone:
            self._tracer.cancel()

    def lane_ended(self, batches: BatchAssembler) -> None:
        """Note that the thread of these steps has ended: it begins no trace any more."""
        if batches is self._batches:
            self._tracer.thread_ended()

    def mark(self, events: List[StepEvent]) -> None:
        """Mark the steps among the events that a trace disturbed, and learn from others how long a trace will be."""
        for event in events if self._tracer.launches is None else ():
            operations = event.get("facts", {}).get("ops") if type(event) is dict else None
            if type(operations) is dict and type(operations.get("launches")) is int:
                self._tracer.launches = operations["launches"]
        self._learn_phases(events)
        begin, end = self._tracer.window
        if self._batches is None or not begin:
            return
        for place, event in enumerate(events):
            step = step_times(event)
            self._assembled = self._assembled if step is None else step.start + step.duration
            if step is None or (step.start + step.duration) * NANOSECOND < begin or step.start * NANOSECOND > end:
                continue
            self._measured[step.number] = (step.start, step.start + step.duration)
            if type(event) is PlainStep:
                events[place] = event._replace(shape=event.shape._replace(measured=True))
            else:
                event["measured"] = True  # type: ignore[index]

    def _learn_phases(self, events: List[StepEvent]) -> None:
        """Let the tracer know the phases of the newest step, for traces of parts."""
        for event in reversed(events):
            if type(event) is dict and event["kind"] == "gpu_time":
                self._tracer.parts.learn_device(event.get("seconds", 0.0), event.get("phases", []))
            step = step_times(event)
            if step is not None and step.in_main_loop:
                if type(event) is PlainStep:
                    phases = list(zip(event.shape.names, event.phases, event.shape.counts))
                else:
                    rows = event.get("phases", [])  # type: ignore[union-attr]
                    phases = [(name, int(seconds * NANOSECOND), times) for name, seconds, _, times in rows]
                self._tracer.parts.learn(int(step.duration * NANOSECOND), phases)
                return

    def take(self, producer: str, is_last: bool = False) -> List[Mapping]:
        """Return the event of a trace that has ended, once its steps have been assembled.

        Args:
            is_last: whether nothing more will be assembled.
        """
        if self._written is not None:
            self._written.close()
            self._written = None
        batches, trace = self._batches, self._tracer.finished
        if batches is None:
            return []
        wish = self._wish if self._wish is not None and self._wish.steps else None
        if wish is not None:
            self._follow_wish(wish)
        if trace is None:
            if not self._tracer.wanted and self._tracer.finished is None:  # refused
                self._forget(batches)
                if wish is not None:
                    self._end_wish(control.REFUSED, self._tracer.refusal or self._tracer.status or "")
            return []
        last = batches.marks[-1][0] if batches.marks else 0
        # A trace ends just before the entry that ends its last step.
        if last < trace.ended and not is_last and host_clock() < trace.ended + MAX_WAIT_NS:
            return []
        if trace.since is not None and self._assembled * NANOSECOND < trace.ended and not is_last:
            return []  # the step that it is a part of, to be marked, too
        self._tracer.finished = None
        event = self._event(trace, batches, wish, producer)
        self._forget(batches)
        if wish is not None:
            self._settle(wish, has_event=event is not None)
        return [] if event is None else [event]

    def _settle(self, wish: _Wish, has_event: bool) -> None:
        """End the wish whose event is written next, or that was tried often enough."""
        wish.tries += 1
        if has_event:
            self._written, self._wish = wish.caller, None
        elif wish.tries < MAX_TRIES:
            wish.steps = 0  # again
        else:
            self._end_wish(control.REFUSED)

    def _lies_in(self, trace: Finished, start: float, end: float) -> bool:
        """Return whether a step, in seconds, lies in a trace. The trace's begin and end may have made it longer."""
        step, (asked, over) = (start * NANOSECOND, end * NANOSECOND), self._tracer.window
        pauses = _shared(step, (asked, trace.began)) + _shared(step, (trace.ended, over))
        return 2 * _shared(step, (trace.began, trace.until)) > step[1] - step[0] - pauses

    def _forget(self, batches: BatchAssembler) -> None:
        self._batches = batches.marks = None
        self._measured = {}

    def _event(
        self, trace: Finished, batches: BatchAssembler, wish: Optional[_Wish], producer: str
    ) -> Optional[Mapping]:
        """Return what a trace shows; None where no whole step lies in it (a loader that had nothing left)."""
        if trace.since is not None:
            return self._part_event(trace, trace.since, batches.marks or [])
        inside = [number for number, times in self._measured.items() if self._lies_in(trace, *times)]
        if not inside:
            self._tracer.learn(trace, 0, 0)
            return None
        trace, recorded = _read(trace)
        self._tracer.learn(trace, len(inside), len(recorded))
        marks = batches.marks or []
        if trace.on_cuda:
            since = trace.began if trace.was_idle else None
            event = kernel_trace(recorded, marks, since, trace.until)
        else:
            event = operator_trace(recorded, marks, release_interpreter)
        if trace.left_out is not None:  # what ran last is missing
            event.busy, event.kernel_seconds, event.exposed, event.idle = None, None, None, []
        event.first, event.steps = min(inside), len(inside)
        event.seconds, event.left_out = (trace.until - trace.began) / NANOSECOND, trace.left_out
        event.pause, event.t = trace.pause / NANOSECOND, monotonic_seconds()
        if wish is not None:
            event.asked = wish.number
            if wish.request.events and self.events_file is not None:
                about = {"producer": producer, "asked": wish.number, "device": event.device, "first": event.first}
                write_events(self.events_file, about, trace, recorded, marks, release_interpreter)
        return to_dict(event)

    def _part_event(self, trace: Finished, since: int, marks: List[Tuple[int, str]]) -> Optional[Mapping]:
        """Return what a trace of a part shows; None where the device has done no phase of it."""
        trace, recorded = _read(trace)
        spans = part_spans(recorded, marks, trace.began, since, trace.until)
        self._tracer.parts.tried(name for name, _, _ in spans)
        self._tracer.learn(trace, len(spans), len(recorded))
        if not spans:
            return None
        event = kernel_trace(recorded, marks, trace.began if trace.was_idle else None, trace.until)
        within = [number for number, (start, end) in self._measured.items() if start <= since / NANOSECOND <= end]
        event.first, event.parts = min(within, default=self._process.steps + 1), spans
        event.seconds, event.pause = (trace.until - since) / NANOSECOND, trace.pause / NANOSECOND
        event.t = monotonic_seconds()
        return to_dict(event)


def _read(trace: Finished) -> Tuple[Finished, List[profiler.Recorded]]:
    """Return a trace and what it recorded. Its pause is longer by what holds the interpreter meanwhile."""
    began = host_clock()
    events = trace.result.events()
    held = host_clock() - began
    return trace._replace(pause=trace.pause + held), list(
        in_slices(profiler.read(events, trace.session), release_interpreter)
    )


def _shared(one: Tuple[float, float], other: Tuple[float, float]) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
