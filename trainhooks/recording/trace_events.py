"""Let steps be traced, and make the events of the traces. In the background thread."""

from __future__ import annotations

import select
from typing import Dict, List, Optional, Tuple

from trainhooks.device.device_lane import DeviceLane
from trainhooks.lane_entries import NANOSECOND, monotonic_seconds
from trainhooks.protocol.encoding import to_dict
from trainhooks.recording import facts
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import Mapping, PlainStep, StepEvent, step_times
from trainhooks.tracing import profiler
from trainhooks.tracing.trace_reading import in_slices, kernel_trace, operator_trace
from trainhooks.tracing.tracer import OTHER_RANK, Finished, Tracer

MIN_INSIDE = 0.9  # of a step, between the begin and the end of a trace: its marks are made a little apart


class TraceEvents:
    """Ask the tracer for traces, and mark the steps that they disturb.

    Args:
        process: the state shared by the process's lanes.
        device: the lane of the device, which tells the tracer where steps begin.
    """

    def __init__(self, process: ProcessState, device: DeviceLane) -> None:
        self._process = process
        self._device = device
        self._tracer: Tracer = device.tracer
        self._batches: Optional[BatchAssembler] = None  # of the lane that is traced
        self._measured: Dict[int, Tuple[float, float]] = {}  # index: begin and end of a step that a trace disturbed
        if facts.rank_facts().get("rank", 0):
            self._tracer.turn_off(OTHER_RANK)

    def consider(self, batches: BatchAssembler) -> None:
        """Let steps of this lane be traced if it is time to."""
        lane, on_cuda = batches.assembler.lane, self._device.is_on
        if lane is None or self._batches is not None:
            return
        if self._device.status is not None and not on_cuda:  # a GPU is used: the host's operators say little
            self._tracer.turn_off(self._device.status)
            return
        if self._tracer.is_due(on_cuda, self._process.steps):
            self._batches, batches.marks = batches, []  # before the training thread knows of it
            self._tracer.arm(lane, on_cuda)
            self._device.watching = True

    def mark(self, events: List[StepEvent]) -> None:
        """Mark the steps among the events that a trace disturbed, and learn from others how long a trace will be."""
        for event in events:
            if type(event) is dict and event["kind"] == "facts" and "ops" in event["facts"]:
                self._tracer.launches = event["facts"]["ops"].get("launches")
        begin, end = self._tracer.window
        if self._batches is None or not begin:
            return
        for place, event in enumerate(events):
            step = step_times(event)
            if step is None or (step.start + step.duration) * NANOSECOND < begin or step.start * NANOSECOND > end:
                continue
            self._measured[step.number] = (step.start, step.start + step.duration)
            if type(event) is PlainStep:
                events[place] = event._replace(shape=event.shape._replace(measured=True))
            else:
                event["measured"] = True  # type: ignore[index]

    def take(self) -> List[Mapping]:
        """Return the event of a trace that has ended, once its steps have been assembled."""
        batches, trace = self._batches, self._tracer.finished
        if batches is None:
            return []
        if trace is None:
            if not self._tracer.wanted:  # refused
                self._forget(batches)
            return []
        last = batches.marks[-1][0] if batches.marks else 0
        if last < trace.ended and batches.assembler.lane.entries:  # type: ignore[union-attr]
            return []
        self._tracer.finished = None
        event = self._event(trace, batches)
        self._forget(batches)
        return [] if event is None else [event]

    def _forget(self, batches: BatchAssembler) -> None:
        self._batches = batches.marks = None
        self._measured = {}

    def _event(self, trace: Finished, batches: BatchAssembler) -> Optional[Mapping]:
        """Return what a trace shows; None where no whole step lies in it (a loader that had nothing left)."""
        # Beginning a session takes longer than a short step, and is the first step's time.
        begin, end = trace.asked / NANOSECOND, trace.until / NANOSECOND
        inside = [
            number
            for number, (began, ended) in self._measured.items()
            if min(ended, end) - max(began, begin) >= MIN_INSIDE * (ended - began)
        ]
        if not inside:
            self._tracer.learn(trace, 0, 0)
            return None
        recorded = list(in_slices(profiler.read(trace.result, trace.session), _release))
        self._tracer.learn(trace, len(inside), len(recorded))
        if trace.on_cuda:
            since = trace.began if trace.was_idle else None
            event = kernel_trace(recorded, batches.marks or [], since, trace.until)
        else:
            event = operator_trace(recorded, batches.marks or [], _release)
        if trace.left_out is not None:  # what ran last is missing
            event.busy, event.kernel_seconds, event.idle = None, None, []
        event.first, event.steps = min(inside), len(inside)
        event.seconds, event.left_out = (trace.until - trace.began) / NANOSECOND, trace.left_out
        event.pause, event.t = trace.pause / NANOSECOND, monotonic_seconds()
        return to_dict(event)


def _release() -> None:
    """Release the interpreter, without the timer that sleep(0) arms."""
    select.select((), (), (), 0)
