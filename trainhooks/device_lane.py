"""How long the GPU takes over each phase, by CUDA events: opt-in, and off unless TRAINMON_GPU_CLOCK=1 is set.

Off by default because what it costs, and how well it agrees with a clock that waits, differs by GPU and driver:
`make gpu-check` measures both on yours.

A `Watch` stands before a thread's lane. Each entry goes on at once, as it came; where one tells a time, an event from
a bounded pool is recorded on the current stream. Events are asked at later ends of steps, on the same thread (asked
from another one they break a CUDA graph that is being captured), and nothing ever waits for one. A step that cannot
be timed whole is given up and counted: in a capture, over several streams, or where an entry was told in hindsight.
Only the first thread that steps is timed, and none in a forked child.

Work that a phase puts on other streams than the current one is not in its time.
"""

from __future__ import annotations

import sys
from collections import deque
from threading import get_ident
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Tuple

from trainhooks.clocks import host_clock
from trainhooks.entries import CANCEL, NEXT, NOTE, SPAN, STEP, Lane

VARIABLE = "TRAINMON_GPU_CLOCK"

MAX_EVENTS = 4096  # ever made, a device and process: some tens of steps under way, of some tens of boundaries
MAX_MARKS = 512  # boundaries of a step; one with more has phases too short to be worth their events
MAX_UNDER_WAY = 64  # steps whose events the GPU has not reached: it lags by one or two, as a rule
MAX_RESOLVED = 4096  # steps that the background thread has not taken
A_STEP = 4  # steps asked for at the end of one: more than one, so that a backlog goes
# Nanoseconds after which a time was told in hindsight, and an event recorded now would stand at another place.
LATE = 500_000


class Resolved(NamedTuple):
    """A step by both clocks."""

    entries: List[Tuple[Any, ...]]  # those with times, from the begin of the step to its end
    milliseconds: List[float]  # when the GPU came by each, since the first; none: the step was given up
    gap: Optional[float]  # milliseconds from the first of the step resolved before to the first of this one


resolved: Deque[Resolved] = deque(maxlen=MAX_RESOLVED)

_watches: List["Watch"] = []
_timed: Optional["Watch"] = None  # the one whose thread steps


class Watch:
    """A lane's thread, and the step that is open on it."""

    __slots__ = (
        "_anchor",
        "_append",
        "_begun",
        "_cuda",
        "_device",
        "_entries",
        "_events",
        "_free",
        "_is_compiling",
        "_loop",
        "_made",
        "_on",
        "_stream",
        "_under_way",
        "thread",
    )

    def __init__(self, append: Callable[[Tuple[Any, ...]], None]) -> None:
        self.thread = get_ident()
        self._append = append
        self._on = True
        self._cuda: Any = None  # torch.cuda, once the program has started it
        self._is_compiling: Callable[[], bool] = _never
        self._device = -1
        self._stream = 0  # on which the open step began
        self._loop: Any = None  # of the open step
        self._begun: Tuple[Any, ...] = ()  # its first entry
        self._entries: List[Tuple[Any, ...]] = []
        self._events: Optional[List[Any]] = None  # one an entry; None: the open step is given up
        self._under_way: Deque[Tuple[List[Tuple[Any, ...]], List[Any]]] = deque()
        self._free: List[Any] = []
        self._made = 0
        self._anchor: Any = None  # the first event of the step resolved last

    def put(self, entry: Tuple[Any, ...]) -> None:
        """What the lane's own `put` is otherwise."""
        self._append(entry)
        if self._on:
            try:
                self._take(entry)
            except Exception as error:  # a device in error, an odd torch: the training has to see it first, not us
                self._fail(error)

    def poll(self) -> None:
        """Read what the GPU has done, of the oldest steps. On the thread that steps, and not inside a capture."""
        for _ in range(A_STEP):
            if not self._under_way or not self._under_way[0][1][-1].query():
                return
            self._resolve(*self._under_way.popleft())

    def finish(self) -> None:
        """At the end of the program: what is done by now. Called on the main thread."""
        if self._on and self._cuda is not None:
            try:
                while self._under_way and not self._cuda.is_current_stream_capturing():
                    before = len(self._under_way)
                    self.poll()
                    if len(self._under_way) == before:
                        return
            except Exception as error:  # as in `put`
                self._fail(error)

    def off(self) -> None:
        """For good. Events stay where they are: to free one is a call to a device, and a child has no access to it."""
        self._on = False

    # The step

    def _take(self, entry: Tuple[Any, ...]) -> None:
        what = entry[0]
        if type(what) is int and what != SPAN:
            if what > SPAN:  # it tells no time
                return
            if what in (STEP, NEXT):
                if what == NEXT and entry[2] is self._loop:
                    self._end(entry)
                if self._loop is None:
                    self._begin(entry)
                    return
            elif entry[2] is self._loop:
                if what == CANCEL:
                    self._give_up()  # with nothing to be told: it is no step
                    self._loop = None
                else:
                    self._end(entry)
                return
        if self._events is not None:
            self._mark(entry)

    def _begin(self, entry: Tuple[Any, ...]) -> None:
        global _timed
        if self._cuda is None and not self._find_torch():
            return
        if _timed is not self:
            if _timed is not None:
                self._on = False
                return
            _timed = self
        self._loop = entry[2]
        self._begun = entry
        self._entries = []
        self._events = []
        if self._is_compiling():
            self._give_up()
            return
        stream = self._cuda.current_stream()
        self._stream = stream.cuda_stream
        if stream.device_index != self._device:
            self._move(stream.device_index)
        self._mark(entry)
        if self._under_way and not self._cuda.is_current_stream_capturing():
            self.poll()

    def _move(self, device: int) -> None:
        """To another device. An event belongs to the one on which it was first recorded."""
        for entries, _ in self._under_way:
            _drop(entries[0], entries[-1])
        self._under_way.clear()
        self._device = device
        self._free, self._anchor, self._made = [], None, 0

    def _end(self, entry: Tuple[Any, ...]) -> None:
        self._mark(entry)
        self._loop = None
        entries, events = self._entries, self._events
        self._events = None
        if events is not None and len(self._under_way) < MAX_UNDER_WAY:
            self._under_way.append((entries, events))
            return
        if events is not None:
            self._release(events)
        _drop(self._begun, entry)

    def _mark(self, entry: Tuple[Any, ...]) -> None:
        """Record an event for this entry; where that cannot be done well, give the step up."""
        events, t = self._events, entry[1]
        if events is None:
            return
        if events and t == self._entries[-1][1]:  # told twice, as an end and a begin
            event = events[-1]
        elif host_clock() - t > LATE or len(events) >= MAX_MARKS or self._is_compiling():
            self._give_up()
            return
        else:
            cuda = self._cuda
            stream = cuda.current_stream()
            if (
                stream.cuda_stream != self._stream
                or stream.device_index != self._device
                or cuda.is_current_stream_capturing()
            ):
                self._give_up()
                return
            if self._free:
                event = self._free.pop()
            elif self._made < MAX_EVENTS:
                event = cuda.Event(enable_timing=True)
                self._made += 1
            else:
                self._give_up()
                return
            event.record(stream)
        self._entries.append(entry)
        events.append(event)

    def _give_up(self) -> None:
        """The open step is not timed."""
        if self._events:
            self._release(self._events)
        self._events = None

    def _resolve(self, entries: List[Tuple[Any, ...]], events: List[Any]) -> None:
        first = events[0]
        times = [0.0]
        last = first
        for event in events[1:]:
            if event is not last:
                last = event
                times.append(first.elapsed_time(event))
            else:
                times.append(times[-1])
        gap = None
        if self._anchor is not None:
            gap = self._anchor.elapsed_time(first)
            self._free.append(self._anchor)
        self._anchor = first
        self._release([event for event in events if event is not first])
        resolved.append(Resolved(entries, times, gap))

    def _release(self, events: List[Any]) -> None:
        """Back into the pool, each once."""
        last = None
        for event in events:
            if event is not last:
                self._free.append(event)
                last = event

    # Torch

    def _find_torch(self) -> bool:
        """Whether the program has loaded torch and started CUDA; neither is ever done here."""
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        is_initialized = getattr(cuda, "is_initialized", None)
        if torch is None or is_initialized is None or not is_initialized():
            return False
        if torch.version.cuda is None:  # ROCm: its events go by the same names, and have not been tried
            self._on = False
            return False
        self._is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or _never
        self._cuda = cuda
        return True

    def _fail(self, error: Exception) -> None:
        self._on = False
        name = type(error).__name__
        self._append((NOTE, host_clock(), f"the GPU clock is off from here on: {name}: {_said(error)}"))


def _never() -> bool:
    return False


def _said(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # a foreign __str__ may raise anything
        return ""


def _drop(begin: Tuple[Any, ...], end: Tuple[Any, ...]) -> None:
    """A step is not timed; whether it was one at all shows when the host tells it."""
    resolved.append(Resolved([begin, end], [], None))


def watch(lane: Lane) -> None:
    """Stand before this lane; called when it is made, by its thread."""
    watched = Watch(lane.put)
    _watches.append(watched)
    lane.put = watched.put


def finish() -> None:
    """At the end of the program, on the main thread: read what is done."""
    if _timed is not None and _timed.thread == get_ident():
        _timed.finish()


def forget() -> None:
    """In a forked child: the parent's events are none of its own."""
    for each in _watches:
        each.off()
