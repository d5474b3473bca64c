"""Time steps on the device by CUDA events at their boundaries. On by default on CUDA.

Only a sample of the steps is timed. Until the program has started CUDA, and in untimed steps, entries go straight into
a thread's lane. In a timed step they pass through here unchanged, and for each that carries a time an event from a
bounded pool is recorded on the thread's current stream. Events are queried when later steps begin, on the same thread
(from another one that breaks a CUDA graph that is being captured), and nothing ever waits for one. A step that cannot
be timed whole is given up and counted: in a capture, over several devices, or where an entry was put in hindsight. Only
the first thread that steps is timed, and none in a forked child.

The device's lane is the thread's current stream. Other streams count where the thread enters them or waits for them;
what they do beside it does not.
"""

from __future__ import annotations

import os
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Tuple

from trainhooks.device import cuda
from trainhooks.device.cuda import DevicePlace, EventPool
from trainhooks.device.device_sampling import Sampling
from trainhooks.lane_entries import CANCEL, NEXT, NOTE, SPAN, STEP, Lane, Loop, host_clock
from trainhooks.program_errors import pass_on
from trainhooks.tracing.tracer import Tracer

CLOCK_VARIABLE = "TRAINMON_GPU_CLOCK"  # 0: off

MAX_EVENTS = 4096  # ever made by a process: some tens of steps in flight, of some tens of boundaries
MAX_STEP_MARKS = 512  # boundaries of a step; one with more has phases too short to be worth their events
MAX_UNDER_WAY = 64  # steps whose events the device has not reached: it lags by one or two as a rule
MAX_RESOLVED = 4096  # steps that the background thread has not taken
MAX_POLLED_STEPS = 4  # queried when a step begins: more than one, so that a backlog shrinks
MAX_CUDA_CHECKS = 8  # by the training thread, of a program that has not started CUDA; then the background thread asks
MAX_LATENESS_NS = 500_000  # of an entry: later an event would be recorded behind work that came after
MAX_STRETCH_NS = 600_000_000_000  # between two timed steps: beyond, the times of events are too coarse

Entry = Tuple[Any, ...]
Put = Callable[[Entry], None]

ON = "on"
OFF = "off: by setting"
ROCM = "off: ROCm was never tried"
FORKED = "off: in a forked process"


class Resolved(NamedTuple):
    """A step timed by both clocks.

    Attributes:
        entries: those with times, from the begin of the step to its end.
        milliseconds: when the device reached each, from the first on; empty where the step was given up.
        gap: milliseconds from the first entry of the step resolved before to the first of this one.
        sides: indices of the entries recorded on another stream than the first.
        every: how many steps this one stands for.
    """

    entries: List[Entry]
    milliseconds: List[float]
    gap: Optional[float]
    sides: Tuple[int, ...]
    every: int


class UnderWay(NamedTuple):
    """A step whose end the device has not been seen to reach; `cost` in nanoseconds of the training thread so far."""

    entries: List[Entry]
    events: List[Any]  # one for each entry
    sides: List[int]
    every: int
    cost: int


class DeviceLane:
    """Time the device for one thread of this process. What the training thread calls never raises.

    Args:
        route: makes all entries that the calling thread puts into its lane pass through a function.
        tracer: is told where steps begin.

    Attributes:
        watching: whether `begins` is to be called for each step.
        status: of this clock, as shown to users; None before the first step.
        timed_begins: begins of timed steps for the background thread, which empties this.
        resolved: timed steps, likewise.
    """

    def __init__(self, route: Callable[[Lane, Put], None], tracer: Tracer) -> None:
        self._route = route
        self.tracer = tracer
        enabled = os.environ.get(CLOCK_VARIABLE, "1").lower() not in ("0", "false", "no", "off")
        self.watching = enabled
        self.status: Optional[str] = None
        self.timed_begins: Deque[int] = deque(maxlen=MAX_RESOLVED)
        self.resolved: Deque[Resolved] = deque(maxlen=MAX_RESOLVED)
        self.sampling = Sampling()
        self.place = DevicePlace()
        self.through: Put = self.put  # one object, so that it can be compared
        self._on = enabled
        self._off_reason: Optional[str] = None if enabled else OFF
        self._checks_left = MAX_CUDA_CHECKS
        self._cuda: Any = None  # torch.cuda, once the program has started it
        self._is_compiling: Callable[[], bool] = cuda.never
        self._lane: Optional[Lane] = None  # of the thread that is timed
        self._thread = 0
        self._append: Put = _nowhere  # to that lane
        self._open_loop: Optional[Loop] = None  # the loop whose step is open, timed or not
        self._due = False  # the step that begins next is to be timed
        self._abandoned: List[Any] = []  # may neither be used nor freed
        self._start()

    def _start(self) -> None:
        """Start without events and steps."""
        self._device: Optional[int] = None  # that is timed
        self._stream = 0  # on which the open step began
        self._loop: Optional[Loop] = None  # of the open step, where it is timed
        self._first_entry: Entry = ()  # of that step
        self._every = 1
        self._spent = 0  # nanoseconds
        self._entries: List[Entry] = []
        self._sides: List[int] = []
        self._events: Optional[List[Any]] = None  # one for each entry; None: the open step is given up
        self._under_way: Deque[UnderWay] = deque()
        self._pool = EventPool(MAX_EVENTS)
        self._anchor: Any = None  # the first event of the step resolved last
        self._anchored = 0  # when it was recorded

    def begins(self, lane: Lane, loop: Loop) -> Put:
        """Prepare for a step that is about to begin. To be called by its thread while `watching`.

        Returns:
            What to put its first entry with.
        """
        if self.tracer.wanted:
            self.tracer.at_boundary(lane, self.place)
        try:
            self._decide(lane, loop)
        except Exception as error:  # a device in error, an odd torch: the training must see it first
            self._fail(error)
        return lane.put

    def _decide(self, lane: Lane, loop: Loop) -> None:
        if self._cuda is None:
            if not self._checks_left:
                self.watching = self.tracer.wanted  # until the background thread has seen that CUDA runs
                return
            self._checks_left -= 1
            if not self.check_cuda():
                return
        if self._lane is None:
            self._lane, self._append, self._thread = lane, lane.put, get_ident()
        if lane is not self._lane or get_ident() != self._thread:
            return
        if self._open_loop is None:
            self._open_loop = loop
        elif self._open_loop is not loop:
            return  # a step inside a step is one of its phases
        self._due = not self._is_untimed(lane)
        if (self._due or self.tracer.in_part) and self._loop is None:
            self._route(lane, self.through)

    def loop_left(self, loop: Loop) -> None:
        """Note that a loop was left, or that its only step has ended."""
        if self._open_loop is loop:
            self._open_loop = None

    def skips_step(self, lane: Lane) -> bool:
        """Return whether nobody asks for the step of this lane that begins now. Asked once a step while `watching`."""
        return not self.tracer.wanted and self._is_untimed(lane)

    def _is_untimed(self, lane: Lane) -> bool:
        if lane is not self._lane:
            return True
        if self._under_way:
            try:
                began = host_clock()
                if not self._is_compiling() and cuda.is_quiet():
                    self._poll()
                self._spent += host_clock() - began
            except Exception as error:  # as in `begins`
                self._fail(error)
        return not (self._on and self.sampling.due(host_clock()))

    def check_cuda(self) -> bool:
        """Return whether a device is to be timed by now. Any thread may ask; nothing is loaded or started."""
        if self._cuda is None and self.status is None:
            found = cuda.started_cuda()
            if found is None:
                return False
            cuda.watch_captures()
            if not cuda.context_devices():
                return False  # a program that asks for a GPU's name and works on the host
            self._off_reason = self._off_reason or (ROCM if cuda.is_rocm() else None)  # its events go by the same names
            self.status = self._off_reason
            if self._off_reason is not None:
                self._on = False
            else:
                self._is_compiling = cuda.compiling_check()
                self._cuda = found
                cuda.keep_forever(self)  # and so its events
        self.watching = self.is_on or self.tracer.wanted
        return self.is_on

    @property
    def is_on(self) -> bool:
        """Return whether a device is timed."""
        return self._on and self._cuda is not None

    def put(self, entry: Entry) -> None:
        """Append an entry of a timed step, in place of the lane's own `put`."""
        self._append(entry)
        if self._on:
            began = host_clock()
            try:
                self._take(entry)
            except Exception as error:  # as in `begins`
                self._fail(error)
            self._spent += host_clock() - began
            if self.tracer.wanted:
                self.tracer.at_mark(self._lane, self.place, entry)

    def _take(self, entry: Entry) -> None:
        what = entry[0]
        if type(what) is int and what != SPAN:
            if what > SPAN:  # it has no time
                return
            if what in (STEP, NEXT):
                if what == NEXT and entry[2] is self._loop:
                    self._end(entry)
                if self._loop is None:
                    if self._due:
                        self._begin(entry)
                    elif not self.tracer.in_part:  # whose marks are those of an untimed step, too
                        self._step_aside()
                    return
            elif entry[2] is self._loop:
                if what == CANCEL:
                    self._give_up()  # uncounted: it is no step
                    self._loop = None
                else:
                    self._end(entry)
                self._step_aside()
                return
        if self._events is not None:
            self._mark(entry)

    def _begin(self, entry: Entry) -> None:
        self._due = False
        self._loop = entry[2]
        self._first_entry = entry
        self._entries, self._sides, self._events = [], [], []
        self._every = self.sampling.begins(entry[1])
        self.timed_begins.append(entry[1])
        stream = None if self._is_compiling() else self.place.begins(self._cuda)
        if stream is None:
            self._give_up()
            return
        self._stream = stream.cuda_stream
        if stream.device_index != self._device:
            self._move(stream.device_index)
        self._mark(entry)

    def _move(self, device: int) -> None:
        """Go over to another device: an event belongs to the one on which it was first recorded."""
        for step in self._under_way:
            self._pool.release(step.events)
            self._drop(step.entries[0], step.entries[-1], step.every)
        self._under_way.clear()
        self._release_anchor()
        self._device = device
        self._pool.use_device(device)

    def _end(self, entry: Entry) -> None:
        self._mark(entry)
        self._loop = None
        entries, events = self._entries, self._events
        if events is not None and len(self._under_way) < MAX_UNDER_WAY:
            self._events = None
            self._under_way.append(UnderWay(entries, events, self._sides, self._every, self._spent))
            self._spent = 0
            return
        self._give_up()
        self._drop(self._first_entry, entry, self._every)

    def _step_aside(self) -> None:
        if self._lane is not None and self._lane.put is self.through:
            self._route(self._lane, self._append)

    def _mark(self, entry: Entry) -> None:
        """Record an event for this entry, or give the step up where that cannot be done well."""
        events, t = self._events, entry[1]
        if events is None:
            return
        if events and t == self._entries[-1][1]:  # put twice, as an end and a begin
            event = events[-1]
            if self._sides and self._sides[-1] == len(events) - 1:
                self._sides.append(len(events))
        elif (
            host_clock() - t > MAX_LATENESS_NS
            or len(events) >= MAX_STEP_MARKS
            or self._is_compiling()
            or not cuda.is_quiet()
        ):
            self._give_up()
            return
        else:
            stream = self.place.goes_on(self._cuda)
            event = None if stream is None else self._pool.take(self._cuda)
            if stream is None or event is None:
                self._give_up()
                return
            if stream.cuda_stream != self._stream:
                self._sides.append(len(events))
            event.record(stream)
        self._entries.append(entry)
        events.append(event)

    def _give_up(self) -> None:
        """Stop timing the open step."""
        if self._events:
            self._pool.release(self._events)
        self._events = None

    def _poll(self) -> None:
        """Resolve the oldest steps that the device is done with. On the timed thread, and not inside a capture."""
        for _ in range(MAX_POLLED_STEPS):
            if not self._under_way or not self._all_done(self._under_way[0]):
                return
            self._resolve(self._under_way.popleft())

    def _all_done(self, step: UnderWay) -> bool:
        events = step.events
        if step.sides:  # streams run independently
            return all(event.query() for event in events)
        return bool(events[-1].query())

    def _resolve(self, step: UnderWay) -> None:
        began = host_clock()
        entries, events = step.entries, step.events
        first = last = events[0]
        times = [0.0]
        for event in events[1:]:
            if event is not last:
                last = event
                times.append(first.elapsed_time(event))
            else:
                times.append(times[-1])
        gap = None
        if self._anchor is not None and entries[0][1] - self._anchored < MAX_STRETCH_NS:
            gap = self._anchor.elapsed_time(first)
        self._release_anchor()
        self._anchor, self._anchored = first, entries[0][1]
        self._pool.release([event for event in events if event is not first])
        self.resolved.append(Resolved(entries, times, gap, tuple(step.sides), step.every))
        self.status = ON
        self.sampling.add_cost(step.cost + host_clock() - began)

    def _release_anchor(self) -> None:
        if self._anchor is not None:
            self._pool.release([self._anchor])
            self._anchor = None

    def _drop(self, begin: Entry, end: Entry, every: int) -> None:
        """Report a step that could not be timed; the host's events show whether it was a step at all."""
        self.resolved.append(Resolved([begin, end], [], None, (), every))
        self.sampling.add_failure(self._spent)
        self._spent = 0

    def finish(self) -> None:
        """Resolve what is done by the end of the program. For the main thread."""
        self.tracer.end()
        if self._cuda is None or not self._on or self._thread != get_ident():
            return
        try:
            while self._under_way and cuda.is_quiet():
                before = len(self._under_way)
                self._poll()
                if len(self._under_way) == before:
                    return
        except Exception as error:  # as in `begins`
            self._fail(error)

    def release(self) -> None:
        """Time the next thread that steps: the one so far is not the training's."""
        if self._lane is not None and self._lane.put is self.through:
            self._lane.put = self._append
        self._lane = self._open_loop = None
        # Another thread's events, not to be touched.
        self._abandoned.append((self._under_way, self._pool, self._anchor))
        self._start()

    def forget(self) -> None:
        """Turn the lane off in a forked child. The parent's events stay: to free one is a call to its device."""
        self._on = self.watching = False
        self._off_reason, self.status = FORKED, None
        self._cuda = None
        self.timed_begins.clear()
        self.resolved.clear()

    def _fail(self, error: Exception) -> None:
        """Turn the lane off after an error, which must not reach the training unless its signal handler raised it."""
        pass_on(error)
        self._on = self.watching = False
        text = f"{type(error).__name__}: {_text_of(error)}"
        self.status = f"off: {text}"
        if self._lane is not None:
            self._append((NOTE, host_clock(), f"the GPU clock is off from here on: {text}"))
            if get_ident() == self._thread:
                self._step_aside()


def _nowhere(_: Entry) -> None:
    raise RuntimeError("no thread is timed")


def _text_of(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # a foreign __str__ may raise anything
        return ""
