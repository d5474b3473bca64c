"""When this rank calls its collectives, in some steps: by torch's flight recorder, with the phase of each call.

Who calls a collective last keeps the other ranks waiting, whatever phase they wait in: that is seen only by the calls
of all ranks. The recorder is read as a whole, which holds the interpreter for some 20 microseconds a call, and it keeps
2,000. So few steps are looked at, the fewer the longer that takes. All ranks choose the same ones.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from typing import Dict, List, Optional, Tuple

from trainhooks.lane_entries import NANOSECOND, host_clock, monotonic_seconds
from trainhooks.own_thread import release_interpreter
from trainhooks.protocol.encoding import to_dict
from trainhooks.protocol.events import Collectives
from trainhooks.protocol.limits import MAX_CALLS
from trainhooks.protocol.vocabulary import BETWEEN_STEPS
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.collectives import Call, calls_since
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import Mapping, StepEvent, StepTimes, step_times

WINDOW_STEPS = 32
FIRST_STEP = 8  # those before compile, allocate and fill caches
MIN_DISTANCE = 64  # steps between the begins of two windows; a power of two, as all distances are
MAX_SHARE = 0.002  # of the time: what reading may hold the interpreter for
MAX_WINDOW_SECONDS = 20.0  # after which the whole steps of a window so far are told


class CollectiveTimes:
    """Tell of a window of steps when this rank called its collectives.

    Args:
        process: the state shared by the process's lanes.
    """

    def __init__(self, process: ProcessState) -> None:
        self._process = process
        self._distance = MIN_DISTANCE
        self._first = FIRST_STEP  # step of the window that is open or comes next
        self._seen = 0  # steps at the last look
        self._batches: Optional[BatchAssembler] = None  # of the lane that is looked at
        self._marks: List[Tuple[int, str]] = []
        self._steps: List[StepTimes] = []
        self._since = 0.0  # when the window was opened, or last told of

    def mark(self, events: List[StepEvent]) -> None:
        """Note when the steps of an open window began and ended."""
        if self._batches is None:
            return
        for event in events:
            step = step_times(event)
            if step is not None and step.in_main_loop and 0 <= step.number - self._first < WINDOW_STEPS:
                self._steps.append(step)

    def take(self, batches: Optional[BatchAssembler]) -> List[Mapping]:
        """Return what a window has shown, once it is over.

        Args:
            batches: of the lane that steps; None where none does.
        """
        steps = self._process.steps
        ahead, self._seen = 2 * (steps - self._seen) + 4, steps
        if self._batches is None:
            if batches is not None and steps + ahead >= self._first:
                self._open(batches, steps)
            return []
        if batches is not self._batches or batches.marks is not self._marks:  # a trace is recorded
            self._close(steps)
            return []
        is_over = steps >= self._first + WINDOW_STEPS
        if not (is_over or (self._steps and monotonic_seconds() - self._since > MAX_WINDOW_SECONDS)):
            return []
        event = self._event()
        if is_over:
            self._close(steps)
        else:
            del self._marks[:-1]
            self._steps, self._since = [], monotonic_seconds()
        return [] if event is None else [to_dict(event)]

    def _open(self, batches: BatchAssembler, steps: int) -> None:
        distributed = sys.modules.get("torch.distributed")
        # A torch that was built without it has the module and nothing in it.
        is_alone = not getattr(distributed, "is_initialized", bool)() or distributed.get_world_size() < 2  # type: ignore[union-attr]
        if is_alone or steps >= self._first or batches.marks is not None:
            self._plan(steps)
            return
        self._batches, self._steps, self._since = batches, [], monotonic_seconds()
        batches.marks = self._marks = []

    def _close(self, steps: int) -> None:
        if self._batches is not None and self._batches.marks is self._marks:
            self._batches.marks = None
        self._batches, self._marks = None, []
        self._plan(steps)

    def _plan(self, steps: int) -> None:
        """Choose the next window: as every rank does at this distance."""
        past = max(0, steps - FIRST_STEP)
        self._first = FIRST_STEP + (past // self._distance + 1) * self._distance

    def _event(self) -> Optional[Collectives]:
        if not self._steps:
            return None
        steps = sorted(self._steps, key=lambda step: step.start)
        began, ended = int(steps[0].start * NANOSECOND), _end(steps[-1])
        asked = host_clock()
        offset = time.time_ns() - asked
        called = calls_since(began + offset, release_interpreter)
        cost = (host_clock() - asked) / NANOSECOND
        seconds = (ended - began) / NANOSECOND / len(steps)
        while self._distance * seconds * MAX_SHARE < cost and self._distance < 2**20:
            self._distance *= 2
        inside = [call._replace(created=call.created - offset) for call in called if call.created - offset < ended]
        marks = sorted(self._marks, key=lambda mark: mark[0])  # of one moment in their order
        return _event(inside[:MAX_CALLS], marks, steps) if inside else None


def _end(step: StepTimes) -> int:
    """Return its end in nanoseconds."""
    return int((step.start + step.duration) * NANOSECOND)


def _event(called: List[Call], marks: List[Tuple[int, str]], steps: List[StepTimes]) -> Collectives:
    """Return the event of these calls, with their phases and what follows each of them."""
    began, ended = int(steps[0].start * NANOSECOND), _end(steps[-1])
    event = Collectives(producer="", seq=0, t=ended / NANOSECOND)
    event.begin, event.first, event.steps = began / NANOSECOND, steps[0].number, len(steps)
    totals: Dict[str, int] = {}
    for (since, phase), (until, _) in zip(marks, [*marks[1:], (ended, "")]):
        inside = min(until, ended) - max(since, began)
        if inside > 0:
            totals[phase] = totals.get(phase, 0) + inside
    event.seconds = [(phase, ns / NANOSECOND) for phase, ns in totals.items()]
    times, ends = [t for t, _ in marks], [_end(step) for step in steps]
    kinds: Dict[Tuple[str, str, str, int], int] = {}
    following = [call.created for call in called[1:]]
    for call, next_call in zip(called, [*following, ended]):
        place = bisect_right(times, call.created)
        phase = marks[place - 1][1] if place else BETWEEN_STEPS
        until = min(next_call, times[place] if place < len(times) else ended)
        kind = kinds.setdefault((call.group, call.call, phase, call.size), len(kinds))
        step = steps[min(bisect_right(ends, call.created), len(steps) - 1)].number
        micros = (call.created - began) // 1000, (until - began) // 1000
        event.calls.append((kind, call.number, step, *micros))
    event.kinds = list(kinds)
    return event
