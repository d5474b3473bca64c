"""Make the event of a trace: what ran, in which phase, for how long. In the background thread.

A kernel belongs to the phase in which it was launched, never to the one in which it ran: calls and kernels carry the
same correlation number. An operator's own time is what no operator inside it took.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from trainhooks.lane_entries import NANOSECOND
from trainhooks.protocol.calls import cuda_call_activity
from trainhooks.protocol.events import Trace, TraceRow
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.tracing.profiler import Recorded

MAX_ROWS = 200  # of a table; what is left shares a last row
MAX_SHAPES = 20  # operators whose shapes are given
OTHERS = "others"
COLLECTIVE = "nccl"  # in the names of kernels
NAME_PARTS = ("void ", "at::native::", "(anonymous namespace)::", "at_cuda_detail::", "std::")
PAUSE_EVENTS = 200  # read before the interpreter is released

T = TypeVar("T")
Key = Tuple[str, str]
Mark = Tuple[int, str]  # time; what goes on from there


class Phases:
    """What went on at a time, from marks in the order of time."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._times = [t for t, _ in marks]
        self._names = [name for _, name in marks]

    def at(self, t: int) -> str:
        place = bisect_right(self._times, t)
        return self._names[place - 1] if place else "other"


class Table:
    """How often and for how long things ran, by name and phase."""

    def __init__(self) -> None:
        self._rows: Dict[Key, List[int]] = {}

    def add(self, name: str, phase: str, nanoseconds: int) -> None:
        row = self._rows.get((name, phase))
        if row is None:
            row = self._rows[name, phase] = [0, 0]
        row[0] += 1
        row[1] += nanoseconds

    def rows(self) -> List[TraceRow]:
        """Return the costliest rows; those beyond MAX_ROWS are one a phase."""
        ordered = sorted(self._rows.items(), key=lambda item: -item[1][1])
        rows = [(clean(name, MAX_NAME), phase, times, ns / NANOSECOND) for (name, phase), (times, ns) in ordered]
        rest: Dict[str, List[float]] = {}
        for _, phase, times, seconds in rows[MAX_ROWS:]:
            row = rest.setdefault(phase, [0, 0.0])
            row[0] += times
            row[1] += seconds
        return rows[:MAX_ROWS] + [(OTHERS, phase, int(times), seconds) for phase, (times, seconds) in rest.items()]


def in_slices(items: Iterable[T], pause: Callable[[], object]) -> Iterator[T]:
    """Return the items, with a pause after each PAUSE_EVENTS of them, to release the interpreter."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % PAUSE_EVENTS:
            pause()


def operator_trace(recorded: Sequence[Recorded], marks: Sequence[Mark], pause: Callable[[], object]) -> Trace:
    """Return the trace of operators on the host.

    Args:
        recorded: of one session, in any order.
        marks: of the phases, by the host's clock.
        pause: called now and then, to release the interpreter.
    """
    phases, table = Phases(marks), Table()
    longest: Dict[str, Recorded] = {}  # by name
    for one, own in _with_own_time(in_slices(sorted(recorded, key=_nesting), pause)):
        table.add(one.name, phases.at((one.began + one.ended) // 2), own)  # it may begin just before its phase
        known = longest.get(one.name)
        if known is None or one.ended - one.began > known.ended - known.began:
            longest[one.name] = one
    trace = Trace(producer="", seq=0, t=0.0, device="cpu", rows=table.rows())
    names = list(dict.fromkeys(row[0] for row in trace.rows))[:MAX_SHAPES]
    trace.shapes = [(name, found) for name in names if (found := shapes_of(longest.get(name)))]
    return trace


def _nesting(one: Recorded) -> Tuple[int, int, int]:
    """Return what sorts the operators of each thread, outer ones before those inside them."""
    return one.lane, one.began, -one.ended


def _with_own_time(ordered: Iterable[Recorded]) -> List[Tuple[Recorded, int]]:
    """Return operators with their own nanoseconds, without those of what ran inside them."""
    open_: List[Tuple[Recorded, List[int]]] = []  # with the nanoseconds inside
    out: List[Tuple[Recorded, List[int]]] = []
    for one in ordered:
        while open_ and (open_[-1][0].lane != one.lane or open_[-1][0].ended <= one.began):
            open_.pop()
        if open_:
            outer, inside = open_[-1]
            inside[0] += min(one.ended, outer.ended) - one.began
        open_.append((one, [0]))
        out.append(open_[-1])
    return [(one, max(0, one.ended - one.began - inside[0])) for one, inside in out]


def shapes_of(one: Optional[Recorded]) -> str:
    """Return the shapes of an operator's tensors, as `32x64 64x64`; empty where they are not known."""
    shapes = one.event.shapes() if one is not None else []
    return clean(" ".join("x".join(str(size) for size in shape) for shape in shapes if shape), MAX_NAME)


def kernel_trace(recorded: Sequence[Recorded], marks: Sequence[Mark], since: Optional[int], until: int) -> Trace:
    """Return the trace of kernels, copies and memsets, and of the calls of the CUDA runtime. Arguments as above.

    Args:
        since: when the trace began, if the device had nothing to do then; else its first gap is not known.
        until: by the host's clock. Of what is later some kernels are missing, and of what is earlier the launches: both
            are left out.
    """
    phases, kernels, calls = Phases(marks), Table(), Table()
    on_host = [one for one in recorded if not one.on_device and one.began <= until]
    launched = {one.correlation: one.began for one in on_host if one.correlation}
    on_device = [one for one in recorded if one.on_device and one.correlation in launched]
    sizes: Dict[Key, int] = {}
    for one in on_device:
        phase = phases.at(launched[one.correlation])
        name = kernel_name(one.name)
        kernels.add(name, phase, one.ended - one.began)
        if one.bytes > 0:
            key = (clean(name, MAX_NAME), phase)
            sizes[key] = sizes.get(key, 0) + one.bytes
    for one in on_host:
        calls.add(one.name, phases.at(one.began), one.ended - one.began)
    busy = union([(one.began, one.ended) for one in on_device])
    trace = Trace(producer="", seq=0, t=0.0, device="cuda", rows=kernels.rows(), calls=calls.rows())
    trace.busy = sum(ended - began for began, ended in busy) / NANOSECOND
    others = [(one.began, one.ended) for one in on_device if COLLECTIVE not in one.name.lower()]
    if len(others) < len(on_device):
        trace.exposed = trace.busy - sum(ended - began for began, ended in union(others)) / NANOSECOND
    trace.kernel_seconds = sum(one.ended - one.began for one in on_device) / NANOSECOND
    trace.idle = _idle(_with_ends(busy, since, until), on_host, phases)
    trace.streams = len({one.lane for one in on_device})
    trace.bytes = [(name, phase, size) for (name, phase), size in sizes.items()][:MAX_ROWS]
    return trace


def part_spans(
    recorded: Sequence[Recorded], marks: Sequence[Mark], began: int, since: int, until: int
) -> List[Tuple[str, int, float]]:
    """Return the phases between two marks: how often each began, and the device's seconds in it, as events measure it.

    The device reaches a mark when it has done what was launched before, and not before the host does.

    Args:
        began: when the trace did, just after the mark. What the device then still does of before has no launch in it.
        since: the mark where the part began.
        until: the last mark that the device is known to have reached.
    """
    calls = {one.correlation: one.began for one in recorded if not one.on_device and one.correlation}
    ran = [one for one in recorded if one.on_device]
    launched = sorted((calls[one.correlation], one.ended) for one in ran if one.correlation in calls)
    inside = [(t, name) for t, name in marks if since <= t < until]
    spans: Dict[str, List[int]] = {}
    reached = max([began, *(one.ended for one in ran if one.correlation not in calls)])
    place, before = 0, ""
    for (_, name), end in zip(inside, [*(t for t, _ in inside[1:]), until]):
        reached_before = reached
        while place < len(launched) and launched[place][0] < end:
            reached = max(reached, launched[place][1])
            place += 1
        reached = max(reached, end)
        row = spans.setdefault(name, [0, 0])
        row[0] += name != before
        row[1] += reached - reached_before
        before = name
    return [(clean(name, MAX_NAME), times, ns / NANOSECOND) for name, (times, ns) in spans.items()][:MAX_ROWS]


def kernel_name(name: str) -> str:
    """Return a kernel's name without what says nothing of it, so that what does is within the first characters."""
    for part in NAME_PARTS:
        name = name.replace(part, "")
    return name


def union(stretches: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Return stretches joined where they touch, in order."""
    out: List[Tuple[int, int]] = []
    for began, ended in sorted(stretches):
        if out and began <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], ended))
        else:
            out.append((began, ended))
    return out


def _with_ends(busy: List[Tuple[int, int]], since: Optional[int], until: int) -> List[Tuple[int, int]]:
    """Return busy stretches between the begin and the end of the steps, so that what lies outside of them is a gap."""
    first = [(since, since)] if since is not None and busy and since < busy[0][0] else []
    last = [(until, until)] if busy and busy[-1][1] < until else []
    return first + busy + last


def _idle(busy: List[Tuple[int, int]], on_host: List[Recorded], phases: Phases) -> List[TraceRow]:
    """Return the device's gaps by what the host did in most of each (a call, or `python`), and by phase."""
    calls = sorted(on_host, key=lambda one: one.began)
    begins = [one.began for one in calls]
    table = Table()
    for (_, began), (ended, _) in zip(busy, busy[1:]):  # noqa: RUF007
        spent: Dict[str, int] = {}
        for place in range(max(0, bisect_right(begins, began) - 1), bisect_right(begins, ended)):
            one = calls[place]
            shared = min(one.ended, ended) - max(one.began, began)
            if shared > 0:
                kind = cuda_call_activity(one.name)
                spent[kind] = spent.get(kind, 0) + shared
        spent["python"] = max(0, ended - began - sum(spent.values()))
        table.add(max(spent, key=lambda kind: spent[kind]), phases.at((began + ended) // 2), ended - began)
    return table.rows()
