"""What a process's host memory grows by, for who asks: by line and by type, over a few steps.

tracemalloc runs meanwhile, which makes Python several times slower. So it is turned on for few steps and seconds only,
and the answer says how much slower they were. A tracemalloc of the program's own is read, and stays on.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import operator
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from trainhooks.lane_entries import monotonic_seconds
from trainhooks.protocol import control
from trainhooks.protocol.control import Answer
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.memory import MAX_LINES, Growth, Row
from trainhooks.recording.control_socket import Caller
from trainhooks.recording.frames import innermost_place
from trainhooks.recording.gc_room import no_collection
from trainhooks.recording.memory_holders import add, most, process_memory, resident_bytes
from trainhooks.recording.step_blocks import PlainStep, StepEvent, step_times

FRAMES = 16  # kept of an allocation: a model's own layers lie between it and the program's line
MIN_STEPS, MAX_STEPS = 3, 5  # that end before tracemalloc runs, and between the two looks
MIN_SECONDS = 0.5  # for each, where steps are short
MAX_BEFORE_SECONDS, MAX_SECONDS = 5.0, 10.0
MAX_TRACED_BYTES = 256 << 20  # of the program's own tracemalloc: to read more would hold the interpreter for long

BUSY = "another one asks for the same now"
LOADED = "the program has loaded tracemalloc and may turn it on itself"
TOO_MUCH = "the program's own tracemalloc has recorded too much to be read"
MISSING = "this Python has no tracemalloc"

Trace = Optional[Tuple[Tuple[str, int], ...]]  # file and line of an allocation's frames, the innermost first
Traced = Tuple[int, Trace]  # bytes, and where they come from


class _Sums:
    """Bytes and number of what comes from one trace, by its hash: kept without containers, which Python would count."""

    def __init__(self) -> None:
        self._sizes: Dict[int, int] = {}
        self._counts: Dict[int, int] = {}

    def add(self, rows: Iterable[Traced], traces: Optional[Dict[int, Trace]] = None) -> None:
        """Add rows of bytes and trace. `traces` gets the trace of each hash."""
        for size, trace in rows:
            key = hash(trace)
            self._sizes[key] = self._sizes.get(key, 0) + size
            self._counts[key] = self._counts.get(key, 0) + 1
            if traces is not None:
                traces[key] = trace

    def grown(self, before: _Sums, traces: Dict[int, Trace]) -> List[Row]:
        """Return the places at which more is held than before: place, bytes and number more. The most first."""
        rows: Dict[str, Tuple[int, int]] = {}
        for key, size in self._sizes.items():
            more = size - before._sizes.get(key, 0)
            if more:
                add(rows, _place(traces[key]), more, self._counts[key] - before._counts.get(key, 0))
        return [row for row in most(rows) if row[1] > 0]


class _Look:
    """What is held at one moment."""

    def __init__(self, steps: int) -> None:
        self.at = monotonic_seconds()
        self.steps = steps
        self.resident = resident_bytes()
        self.lines = _Sums()
        self.tensors = _Sums()


class _Pace:
    """Seconds of a step, between the looks at which the number of steps was seen to have risen."""

    def __init__(self) -> None:
        self._seen: List[Tuple[float, int]] = []  # the first look, the first rise, the last

    def add(self, now: float, steps: int) -> None:
        if not self._seen or steps != self._seen[-1][1]:
            self._seen = [*self._seen[:2], (now, steps)]

    @property
    def seconds(self) -> Optional[float]:
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[-2:]
        return (ended - began) / (last - first)


class GrowthWatch:
    """Answer one caller at a time. In the background thread, at its usual wakes. Nothing is done while nobody asks."""

    def __init__(self) -> None:
        self._caller: Optional[Caller] = None
        self._tracing: Any = None  # the module, while it runs for us
        self._window = 0.0, 0.0  # begin and end of what it made slower; no end yet: 0
        self._reset(0.0, 0)

    def _reset(self, now: float, steps: int) -> None:
        self._growth = Growth()
        self._before, self._during = _Pace(), _Pace()
        self._since, self._from = now, steps  # of the present part
        self._started = False
        self._types: Dict[type, int] = {}  # before tracemalloc, which makes counting slow
        self._first: Optional[_Look] = None

    def begin(self, caller: Caller, steps: int, now: float) -> None:
        """Take a caller."""
        if self._caller is not None:
            caller.answer(Answer(control.REFUSED, [BUSY]))
            caller.close()
        else:
            self._reset(now, steps)
            self._caller = caller

    def look(self, steps: int, now: float) -> None:
        """Go on with what is asked for, if anything is."""
        caller = self._caller
        if caller is None:
            return
        try:
            if caller.is_gone:
                self.stop()
            else:
                self._go_on(caller, steps, now)
        except BaseException:  # an error of ours leaves nothing on
            self.stop()
            raise

    def _go_on(self, caller: Caller, steps: int, now: float) -> None:
        if not self._started:
            self._before.add(now, steps)
            if self._is_over(steps, now, MIN_STEPS, MAX_BEFORE_SECONDS):
                with no_collection():
                    self._start(now)
                self._since, self._from = now, steps
            return
        self._during.add(now, steps)
        if self._first is None:
            if steps > self._from or now - self._since >= MAX_SECONDS / 2:
                with no_collection():
                    self._first, self._from = self._begin_look(steps), steps
        elif self._is_over(steps, now, MAX_STEPS, MAX_SECONDS):
            with no_collection():
                self._end(caller, self._first, steps)

    def _is_over(self, steps: int, now: float, enough: int, most_seconds: float) -> bool:
        waited = now - self._since
        return waited >= most_seconds or (steps - self._from >= enough and waited >= MIN_SECONDS)

    def _start(self, now: float) -> None:
        self._started = True
        with contextlib.suppress(ImportError):
            import _tracemalloc  # the part in C: `tracemalloc` itself loads other modules
        self._types = _types()
        if "_tracemalloc" not in sys.modules:
            self._growth.why = MISSING
        elif _tracemalloc.is_tracing():
            self._growth.programs = True
        elif "tracemalloc" in sys.modules:  # to stop it once the program has started it would break the program
            self._growth.why = LOADED
        else:
            self._tracing, self._window = _tracemalloc, (now, 0.0)
            _tracemalloc.start(FRAMES)

    def _begin_look(self, steps: int) -> _Look:
        look = _Look(steps)
        look.tensors.add(_tensors())
        look.lines.add(self._traced())
        self._growth.held = monotonic_seconds() - look.at
        return look

    def _end(self, caller: Caller, first: _Look, steps: int) -> None:
        growth, last = self._growth, _Look(steps)
        traces: Dict[int, Trace] = {}
        tensors, traced = _tensors(), self._traced()
        self.stop(closes=False)
        last.tensors.add(tensors, traces)
        last.lines.add(traced, traces)
        growth.lines = [row for row in last.lines.grown(first.lines, traces) if row[0]]
        growth.tensors = last.tensors.grown(first.tensors, traces)
        del tensors, traced, traces
        types = _types()
        types[tuple] -= len(growth.lines) + len(growth.tensors)  # ours
        growth.types = _grown_types(self._types, types)
        if growth.why is not None:
            growth.lines = []
        growth.held = max(growth.held, monotonic_seconds() - last.at)
        growth.seconds, growth.steps = last.at - first.at, last.steps - first.steps
        if first.resident is not None and last.resident is not None:
            growth.resident = last.resident - first.resident
        growth.before, growth.during = self._before.seconds, self._during.seconds
        self._reset(0.0, 0)
        answer = process_memory()
        answer.growth = growth
        caller.send(answer.line())
        caller.close()

    def _traced(self) -> Iterable[Traced]:
        """Yield bytes and trace of what lives of Python's memory, as far as tracemalloc knows."""
        found: Any = sys.modules.get("_tracemalloc")
        if found is None or not found.is_tracing():
            return iter(())
        if found.get_tracemalloc_memory() > MAX_TRACED_BYTES:
            self._growth.why = TOO_MUCH
            return iter(())
        return map(operator.itemgetter(1, 2), found._get_traces())

    def stop(self, closes: bool = True) -> None:
        """Stop what runs for the caller, who is gone or will be; the program's tracemalloc goes on."""
        tracing, self._tracing = self._tracing, None
        caller, self._caller = self._caller, None
        if tracing is not None:
            self._window = self._window[0], monotonic_seconds()
            if "tracemalloc" not in sys.modules:  # else the program has loaded it meanwhile, and may have started it
                tracing.stop()
        if closes and caller is not None:
            caller.close()

    def mark(self, events: List[StepEvent]) -> None:
        """Mark the steps among the events that tracemalloc made slower."""
        begin, end = self._window
        for place, event in enumerate(events if begin else ()):
            step = step_times(event)
            if step is None or step.start + step.duration < begin:
                continue
            if end and step.start > end:
                self._window = 0.0, 0.0
                return
            if type(event) is PlainStep:
                events[place] = event._replace(shape=event.shape._replace(measured=True))
            else:
                event["measured"] = True  # type: ignore[index]


# Objects are listed in one call of C, from the list's beginning to its end: no other thread has a turn, in which the
# program could let go of one that would then end in our thread.
_call = operator.methodcaller("__call__")
_count: Callable[[Dict[Any, int], Iterable[Any]], None] = collections._count_elements  # type: ignore[attr-defined]


def _objects() -> Iterator[Any]:
    return itertools.chain.from_iterable(map(_call, (gc.get_objects,)))


def _types() -> Dict[type, int]:
    """Return how many objects of each type the collector knows: those that can hold others."""
    found: Dict[type, int] = {}
    _count(found, map(type, _objects()))
    return found


def _tensors() -> List[Traced]:
    """Return bytes and trace of each tensor on the host; nothing where some have no bytes, as sparse ones."""
    kind, tracing = getattr(sys.modules.get("torch"), "Tensor", None), sys.modules.get("_tracemalloc")
    if kind is None or tracing is None:
        return []
    listed: List[Any] = []  # the list, once there is one
    found: List[Any] = []
    rows: List[Traced] = []
    once, again = itertools.chain.from_iterable(listed), itertools.chain.from_iterable(listed)
    plain = itertools.compress(once, map(operator.is_, map(type, again), itertools.repeat(kind)))
    pairs = zip(map(operator.attrgetter("nbytes"), found), map(tracing._get_object_traceback, found))
    on_host = itertools.compress(pairs, map(operator.attrgetter("is_cpu"), found))
    takes = (
        functools.partial(listed.extend, map(_call, (gc.get_objects,))),
        functools.partial(found.extend, plain),
        functools.partial(rows.extend, on_host),
    )
    # The list holds what goes through it: it is let go of by both.
    ends = (found.clear, listed.clear, *(functools.partial(collections.deque, each, 0) for each in (once, again)))
    try:
        list(map(_call, (*takes, *ends)))
    except Exception:  # whatever a tensor's attribute raises, as a sparse one's does: nothing listed is kept
        list(map(_call, ends))
        return []
    return rows


def _place(trace: Trace) -> str:
    """Return the line that an allocation comes from; empty where it is unknown, or ours."""
    return innermost_place((file, line, "") for file, line in trace or ()) or ""


def _grown_types(before: Dict[type, int], after: Dict[type, int]) -> List[Tuple[str, int]]:
    grown = [(_type_name(kind), count - before.get(kind, 0)) for kind, count in after.items()]
    ours = __name__.partition(".")[0] + "."
    kept = [(name, count) for name, count in grown if count > 0 and not name.startswith(ours)]
    return sorted(kept, key=lambda row: -row[1])[:MAX_LINES]


def _type_name(kind: type) -> str:
    module, name = type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")
    return clean(str(name) if module == "builtins" else f"{module}.{name}", MAX_NAME)
