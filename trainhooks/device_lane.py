"""The device's lane: when the device came by the boundaries of a step, by CUDA events. On by default on CUDA.

Only a sample of the steps is timed (`sampling`). Until a program has started CUDA, and in steps that are not timed,
nothing stands before a thread's lane. In a timed step this does: each entry goes on at once, as it came; where one
tells a time, a mark is made, an event from a bounded pool recorded on the thread's current stream. Events are asked at
later begins of steps, on the same thread (asked from another one they break a CUDA graph that is being captured), and
nothing ever waits for one. A step that cannot be timed whole is given up and counted: in a capture, over several
devices, or where an entry was told in hindsight. Only the first thread that steps is timed, and none in a forked child.

The lane is the thread's current stream. Other streams are in it where the thread enters them (their marks are told) or
waits for them; what they do beside it is not.
"""

from __future__ import annotations

import os
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks import cuda
from trainhooks.clocks import host_clock
from trainhooks.device_delay import SETTLE, Delay, Delayed, Queued
from trainhooks.device_delay import wanted as delay_wanted
from trainhooks.device_place import Place
from trainhooks.entries import CANCEL, NEXT, NOTE, SPAN, STEP, Lane, Loop
from trainhooks.sampling import Sampling

VARIABLE = "TRAINMON_GPU_CLOCK"  # 0: off

MAX_EVENTS = 4096  # ever made, a process: some tens of steps under way, of some tens of boundaries
MAX_MARKS = 512  # boundaries of a step; one with more has phases too short to be worth their events
MAX_UNDER_WAY = 64  # steps whose events the device has not reached: it lags by one or two, as a rule
MAX_RESOLVED = 4096  # steps that the background thread has not taken
AT_ONCE = 4  # steps asked for at the begin of one: more than one, so that a backlog goes
LOOKS = 8  # steps of a program that has not started CUDA, after which only the background thread goes on looking
# Nanoseconds after which a time was told in hindsight, and an event recorded now would stand at another place.
LATE = 500_000
LONGEST = 600_000_000_000  # nanoseconds of a stretch: in one that is longer, events' times are too coarse

Entry = Tuple[Any, ...]
Put = Callable[[Entry], None]

ON = "on"
OFF = "off: by setting"
ROCM = "off: ROCm was never tried"
FORKED = "off: in a forked process"


class Resolved(NamedTuple):
    """A step by both clocks."""

    entries: List[Entry]  # those with times, from the begin of the step to its end
    milliseconds: List[float]  # when the device came by each, since the first; none: the step was given up
    gap: Optional[float]  # milliseconds from the first of the step resolved before to the first of this one
    sides: Tuple[int, ...]  # places of the marks that are on another stream than the first
    every: int  # how many steps this one stands for
    delayed: Optional[Delayed] = None  # the device was held up at its begin: it stands for none
    apart: bool = False  # a delay lies between the step timed before and this one


class UnderWay(NamedTuple):
    """A step whose end the device has not been seen to pass."""

    entries: List[Entry]
    events: List[Any]  # one an entry
    sides: List[int]
    every: int
    cost: int  # nanoseconds that it has cost so far
    delayed: Optional[Queued]
    apart: bool


class DeviceLane:
    """The one of a process. What the training thread calls never raises.

    Attributes:
        watching: whether the begin of each step is to be told; while it is not, nobody has to come here.
        said: what is to be told about this clock; None: nothing yet.
        begun: begins of timed steps, as the background thread is to know them; it empties this.
        resolved: steps by both clocks; likewise.
    """

    def __init__(self, route: Callable[[Lane, Put], None]) -> None:
        self._route = route  # lets all that the calling thread puts into its lane go through something
        wanted = os.environ.get(VARIABLE, "1").lower() not in ("0", "false", "no", "off")
        self.watching = wanted
        self.said: Optional[str] = None
        self.begun: Deque[int] = deque(maxlen=MAX_RESOLVED)
        self.resolved: Deque[Resolved] = deque(maxlen=MAX_RESOLVED)
        self.sampling = Sampling()
        self.delay: Optional[Delay] = delay_wanted() if wanted else None
        self.place = Place()
        self.through: Put = self.put  # one object, so that it can be told from others
        self._on = wanted
        self._why_not: Optional[str] = None if wanted else OFF
        self._looks = LOOKS
        self._cuda: Any = None  # torch.cuda, once the program has started it
        self._is_compiling: Callable[[], bool] = _never
        self._lane: Optional[Lane] = None  # of the thread that is timed
        self._thread = 0
        self._append: Put = _nowhere  # into that lane
        self._told: Optional[Loop] = None  # the loop whose step is open, timed or not
        self._due = False  # the step that begins next is to be timed
        self._kept: List[Any] = []  # what may neither be used nor freed
        self._pool()

    def _pool(self) -> None:
        """Begin with no event and no step."""
        self._device = -1
        self._stream = 0  # on which the open step began
        self._loop: Optional[Loop] = None  # of the open step, where it is timed
        self._begun: Entry = ()  # its first entry
        self._every = 1
        self._spent = 0  # nanoseconds
        self._entries: List[Entry] = []
        self._sides: List[int] = []
        self._events: Optional[List[Any]] = None  # one an entry; None: the open step is given up
        self._delayed: Optional[Queued] = None  # at the begin of the open step
        self._apart = self._next_apart = False  # of the open step, and of the one that is timed next
        self._under_way: Deque[UnderWay] = deque()
        self._pools: Dict[int, List[Any]] = {}  # of events, by the device on which they were recorded first
        self._free: List[Any] = []  # the one of the device that is timed
        self._made = 0
        self._anchor: Any = None  # the first event of the step resolved last
        self._anchored = 0  # when it was recorded

    # Steps begin

    def begins(self, lane: Lane, loop: Loop) -> Put:
        """A step of a lane is about to begin; called by its thread while `watching`, before the entry is put.

        Returns:
            Through what that entry is to go.
        """
        try:
            self._decide(lane, loop)
        except Exception as error:  # a device in error, an odd torch: the training has to see it first, not us
            self._fail(error)
        return lane.put

    def _decide(self, lane: Lane, loop: Loop) -> None:
        if self._cuda is None:
            if not self._looks:
                self.watching = False  # until the background thread has seen that CUDA runs
                return
            self._looks -= 1
            if not self.look():
                return
        if self._lane is None:
            self._lane, self._append, self._thread = lane, lane.put, get_ident()
        if lane is not self._lane or get_ident() != self._thread:
            return
        if self._told is None:
            self._told = loop
        elif self._told is not loop:
            return  # a step inside a step is a phase of it
        self._due = not self.passes(lane)
        if self._due and self._loop is None:
            self._route(lane, self.through)

    def left(self, loop: Loop) -> None:
        """A loop was left, or its only step has ended."""
        if self._told is loop:
            self._told = None

    def passes(self, lane: Lane) -> bool:
        """Whether the step of this lane that begins now needs no timing. To be asked once a step, while `watching`."""
        if lane is not self._lane:
            return True
        if self._under_way:
            try:
                began = host_clock()
                if not self._is_compiling() and cuda.is_quiet():
                    self._poll()
                self._spent += host_clock() - began
            except Exception as error:  # as above
                self._fail(error)
        return not (self._on and self.sampling.due(host_clock()))

    def look(self) -> bool:
        """Whether the program has started CUDA; any thread may ask. Nothing is loaded or started here."""
        if self._cuda is None and self.said is None:
            found = cuda.started()
            if found is None:
                return False
            cuda.watch_captures()
            if not cuda.with_context():
                return False  # a program that asks for a GPU's name, and works on the host
            self._why_not = self._why_not or (ROCM if cuda.is_rocm() else None)  # its events go by the same names
            self.said = self._why_not
            if self._why_not is not None:
                self._on = False
            else:
                self._is_compiling = cuda.compiling()
                self._cuda = found
                cuda.never_freed(self)  # and so its events
        self.watching = self._on and self._cuda is not None
        return self.watching

    # A timed step

    def put(self, entry: Entry) -> None:
        """What the lane's own `put` is in an untimed step."""
        self._append(entry)
        if self._on:
            began = host_clock()
            try:
                self._take(entry)
            except Exception as error:  # as above
                self._fail(error)
            self._spent += host_clock() - began

    def _take(self, entry: Entry) -> None:
        what = entry[0]
        if type(what) is int and what != SPAN:
            if what > SPAN:  # it tells no time
                return
            if what in (STEP, NEXT):
                if what == NEXT and entry[2] is self._loop:
                    self._end(entry)
                if self._loop is None:
                    if self._due:
                        self._begin(entry)
                    else:
                        self._step_aside()
                    return
            elif entry[2] is self._loop:
                if what == CANCEL:
                    self._give_up()  # with nothing to be told: it is no step
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
        self._begun = entry
        self._entries, self._sides, self._events = [], [], []
        self._every = self.sampling.begins(entry[1])
        self._delayed, self._apart, self._next_apart = None, self._next_apart, False
        self.begun.append(entry[1])
        if self._is_compiling():
            self._give_up()
            return
        stream = self.place.begins(self._cuda)
        if stream is None:
            self._give_up()
            return
        self._stream = stream.cuda_stream
        if stream.device_index != self._device:
            self._move(stream.device_index)
        self._mark(entry)
        if self.delay is not None and self._events and self.place.is_current and self.delay.due(entry[1]):
            self._hold_up(self.delay, stream)

    def _hold_up(self, delay: Delay, stream: Any) -> None:
        """Delay the device behind the step's first mark. Neither this step nor what follows at once is usual."""
        event = self._event()
        if event is None:
            return
        self._delayed = delay.queue(event, stream)
        if self._delayed is None:
            self._free.append(event)
        else:
            self._next_apart = True
            self.sampling.settle(SETTLE * self._delayed.wanted)

    def _move(self, device: int) -> None:
        """To another device. An event belongs to the one on which it was first recorded."""
        for step in self._under_way:
            self._release(step.events)
            self._drop(step.entries[0], step.entries[-1], step.every, step.apart)
        self._under_way.clear()
        if self._anchor is not None:
            self._free.append(self._anchor)
        self._device = device
        self._free, self._anchor = self._pools.setdefault(device, []), None

    def _end(self, entry: Entry) -> None:
        self._mark(entry)
        self._loop = None
        entries, events = self._entries, self._events
        if events is not None and len(self._under_way) < MAX_UNDER_WAY:
            self._events = None
            step = UnderWay(entries, events, self._sides, self._every, self._spent, self._delayed, self._apart)
            self._under_way.append(step)
            self._spent = 0
            return
        self._give_up()
        self._drop(self._begun, entry, self._every, self._apart)

    def _step_aside(self) -> None:
        if self._lane is not None and self._lane.put is self.through:
            self._route(self._lane, self._append)

    def _mark(self, entry: Entry) -> None:
        """Record an event for this entry; where that cannot be done well, give the step up."""
        events, t = self._events, entry[1]
        if events is None:
            return
        if events and t == self._entries[-1][1]:  # told twice, as an end and a begin
            event = events[-1]
            if self._sides and self._sides[-1] == len(events) - 1:
                self._sides.append(len(events))
        elif host_clock() - t > LATE or len(events) >= MAX_MARKS or self._is_compiling() or not cuda.is_quiet():
            self._give_up()
            return
        else:
            stream = self.place.goes_on(self._cuda)
            event = None if stream is None else self._event()
            if stream is None or event is None:
                self._give_up()
                return
            if stream.cuda_stream != self._stream:
                self._sides.append(len(events))
            event.record(stream)
        self._entries.append(entry)
        events.append(event)

    def _event(self) -> Optional[Any]:
        if self._free:
            return self._free.pop()
        if self._made >= MAX_EVENTS:
            return None
        self._made += 1
        return self._cuda.Event(enable_timing=True)

    def _give_up(self) -> None:
        """The open step is not timed."""
        if self._events:
            self._release(self._events)
        if self._delayed is not None:
            self._free.append(self._delayed.event)
        self._events = self._delayed = None

    # Steps that the device is done with

    def _poll(self) -> None:
        """Read what the device has done, of the oldest steps. On the thread that steps, and not inside a capture."""
        for _ in range(AT_ONCE):
            if not self._under_way or not self._all_done(self._under_way[0]):
                return
            self._resolve(self._under_way.popleft())

    def _all_done(self, step: UnderWay) -> bool:
        events = step.events
        if step.sides:  # streams go by themselves
            held_up = step.delayed is None or step.delayed.event.query()
            return held_up and all(event.query() for event in events)
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
        if self._anchor is not None:
            if entries[0][1] - self._anchored < LONGEST:
                gap = self._anchor.elapsed_time(first)
            self._free.append(self._anchor)
        self._anchor, self._anchored = first, entries[0][1]
        self._release([event for event in events if event is not first])
        delayed = step.delayed
        held_up = None
        if delayed is not None:
            held_up = Delayed(first.elapsed_time(delayed.event), *delayed[1:])
            self._free.append(delayed.event)
        self.resolved.append(Resolved(entries, times, gap, tuple(step.sides), step.every, held_up, step.apart))
        self.said = ON
        if delayed is None:  # it costs more, and has a budget of its own
            self.sampling.costs(step.cost + host_clock() - began)

    def _release(self, events: List[Any]) -> None:
        """Back into the pool, each once."""
        last = None
        for event in events:
            if event is not last:
                self._free.append(event)
                last = event

    def _drop(self, begin: Entry, end: Entry, every: int, apart: bool) -> None:
        """A step is not timed; whether it was one at all shows when the host tells it."""
        self.resolved.append(Resolved([begin, end], [], None, (), every, None, apart))
        self.sampling.fails(self._spent)
        self._spent = 0

    # Ends

    def finish(self) -> None:
        """At the end of the program, on the main thread: read what is done by now."""
        if self._cuda is None or not self._on or self._thread != get_ident():
            return
        try:
            before = -1
            while self._under_way and len(self._under_way) != before and cuda.is_quiet():
                before = len(self._under_way)
                self._poll()
        except Exception as error:  # as in `put`
            self._fail(error)

    def release(self) -> None:
        """The thread that was taken for the training is not it: the next one that steps is timed."""
        if self._lane is not None and self._lane.put is self.through:
            self._lane.put = self._append
        self._lane = self._told = None
        self._kept.append((self._under_way, self._pools, self._anchor))  # another thread's events, not to be touched
        self._pool()

    def forget(self) -> None:
        """In a forked child: the parent's events are none of its own. They stay where they are: to free one is a call
        to a device, and a child has no access to it.
        """
        self._on = self.watching = False
        self._why_not, self.said = FORKED, None
        self._cuda = None
        self.begun.clear()
        self.resolved.clear()

    def _fail(self, error: Exception) -> None:
        """A CUDA error ends this lane, never the training."""
        self._on = self.watching = False
        text = f"{type(error).__name__}: {_said(error)}"
        self.said = f"off: {text}"
        if self._lane is not None:
            self._append((NOTE, host_clock(), f"the GPU clock is off from here on: {text}"))
            if get_ident() == self._thread:
                self._step_aside()


def _never() -> bool:
    return False


def _nowhere(_: Entry) -> None:
    raise RuntimeError("no thread is timed")


def _said(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # a foreign __str__ may raise anything
        return ""
