"""Make events of the steps that the device lane has timed. In the background thread.

The entries of a step go through an assembler once more, with the device's times in place of the host's. So time belongs
to the same phases by both clocks, however they nest.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks.device.device_lane import DeviceLane, Entry, Resolved
from trainhooks.lane_entries import END, NANOSECOND, monotonic_seconds
from trainhooks.protocol.encoding import to_dict
from trainhooks.protocol.events import GpuTime
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.gc_pauses import Pauses
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import Mapping, PlainStep, StepEvent, step_times

CLOCK_ERROR_NS = 300_000  # uncertainty of the offset between the two clocks
# The clocks drift apart by up to 50 millionths of the time: over this long by less than CLOCK_ERROR_NS.
DRIFT_FREE_NS = 5_000_000_000
MAX_DRIFT = 5e-5
MAX_DISTANCES = 256
MAX_DISTANCE_AGE_NS = 600_000_000_000
MAX_AWAITED = 4096  # steps that are timed, by the device or by the host alone
MAX_STRETCH = 600.0  # seconds between two timed steps
MILLISECOND = 1_000_000  # nanoseconds


class Work(NamedTuple):
    """A step's certain work, in nanoseconds.

    Attributes:
        certain: begins and ends of intervals in which the queue certainly held work, from the begin of the step on.
        lag: how far the device was behind the host at most.
        unreached: when the host made each mark, and until when, by the host's clock, the device had not reached it.
    """

    certain: List[Tuple[int, int]]
    lag: int
    unreached: List[Tuple[int, int]]


class Queue:
    """Work out, step by step, for how long one device certainly had work in its queue.

    The device reaches a mark after the host has made it. How much later is the work that was queued by then, plus the
    distance of the two clocks' zeros. The least that was seen is taken for that distance: an overestimate where the
    device never waited for the host, so that what is certain is never too much.
    """

    def __init__(self) -> None:
        self._zero = 0  # when the previous step began on the device's clock
        self._distances: Deque[Tuple[int, int]] = deque()  # host time; the device's time minus the host's

    def work(self, host: List[int], device: List[int], sides: Tuple[int, ...], gap: Optional[int]) -> Work:
        """Return the certain work of a step.

        Args:
            host, device: when each mark was made, and when the device reached it; the device's from 0 on.
            sides: indices of marks on another stream, which show nothing of the lane's own queue.
            gap: from the begin of the previous step to this one's by the device; None: unknown.
        """
        if gap is None:
            self._distances.clear()
        self._zero += gap or 0
        own = [(made, reached) for index, (made, reached) in enumerate(zip(host, device)) if index not in sides]
        distance = self._distance(own) - self._zero  # of the step's own begin on the device
        certain, lag, until = [], 0, 0
        unreached = []
        for made, reached in own:
            behind = reached - made - distance
            lag = max(lag, behind)
            begin, end = max(made + distance, until), min(reached - CLOCK_ERROR_NS, device[-1])
            if end > begin:
                certain.append((begin, end))
                until = end
            if behind > CLOCK_ERROR_NS:
                unreached.append((made, made + behind - CLOCK_ERROR_NS))
        return Work(certain, lag if lag >= CLOCK_ERROR_NS else 0, unreached)

    def _distance(self, own: List[Tuple[int, int]]) -> int:
        """Return the device's clock minus the host's, at most."""
        distances, now = self._distances, own[-1][0]
        least = min(self._zero + reached - made for made, reached in own)
        while distances and distances[-1][1] >= least:
            distances.pop()
        distances.append((now, least))
        while len(distances) > MAX_DISTANCES or distances[0][0] < now - MAX_DISTANCE_AGE_NS:
            distances.popleft()
        return min(distance + int(max(0, now - t - DRIFT_FREE_NS) * MAX_DRIFT) for t, distance in distances)


class Timed(NamedTuple):
    """A step by the device's clock.

    Attributes:
        began: seconds of the host's clock; by this the host's step is found.
        event: without the step's index; None: it could not be timed.
        gap: seconds of the device from the begin of the step read before.
    """

    began: float
    event: Optional[GpuTime]
    gap: Optional[float]


class DeviceTimes:
    """Join steps by the device's clock with the host's, by when they began.

    Args:
        process: the state shared by the process's lanes.
        lane: the device's.
    """

    def __init__(self, process: ProcessState, lane: DeviceLane) -> None:
        self._process = process
        self._lane = lane
        self._awaited: Dict[float, None] = {}  # begins of steps that are timed, whose index is not known yet
        self._indices: Dict[float, int] = {}  # by begin
        self._newest = 0.0  # begin of the newest step of the run's own thread
        self._waiting: Deque[Timed] = deque(maxlen=MAX_AWAITED)  # the host's entries may be assembled later
        self._queue = Queue()
        self._last: Optional[int] = None  # index of the last timed step
        self._stretch: Optional[float] = None  # seconds of the device from its begin on
        self._dropped = 0
        self._pauses = Pauses()

    def watch(self, wanted: bool) -> None:
        """Observe garbage collection while the device is timed, and only then."""
        self._pauses.watch(wanted)

    def add_steps(self, events: List[StepEvent]) -> None:
        """Note the steps among the host's events. Those that are not timed are not kept."""
        awaited = self._take_begins()
        if not awaited and not self._pauses.watching:
            return
        for event in events:
            step = step_times(event)
            if step is None:
                continue
            if step.in_main_loop:
                self._pauses.add_step(step.start, step.duration, step.start in awaited)
                self._newest = max(self._newest, step.start)
            if step.start in awaited:
                del awaited[step.start]
                self._indices[step.start] = step.number
        for table in (awaited, self._indices):
            while len(table) > MAX_AWAITED:
                del table[next(iter(table))]

    def _take_begins(self) -> Dict[float, None]:
        begun, awaited = self._lane.timed_begins, self._awaited
        while begun:
            awaited[begun.popleft() / NANOSECOND] = None
        return awaited

    def take(self) -> List[Mapping]:
        """Return events of what the lane has timed since the last call."""
        resolved = self._lane.resolved
        events: List[Mapping] = []
        if not resolved and not self._waiting:
            return events
        while resolved:
            step = self._timed(resolved.popleft())
            self._waiting.append(step)
        self._take_begins()  # after that: what has been read had begun before
        for _ in range(len(self._waiting)):
            step = self._waiting.popleft()
            index = self._indices.pop(step.began, None)
            if index is None and step.began > self._newest and step.began in self._awaited:
                self._waiting.append(step)  # its index is still to come
                continue
            event = self._event(index, step)
            if event is not None:
                events.append(event)
        return events

    def _event(self, index: Optional[int], step: Timed) -> Optional[Mapping]:
        """Return the event of a step; None where it came to nothing (an exception, a loop that was left)."""
        self._awaited.pop(step.began, None)
        if step.event is not None:
            known = self._stretch is not None and step.gap is not None
            self._stretch = self._stretch + step.gap if known else None  # type: ignore[operator]
        if index is None:
            return None
        event = step.event
        if event is None:
            self._dropped += 1
            event = GpuTime(producer="", seq=0, t=0.0)
        else:
            collected = self._pauses.since_last(step.began)
            if self._stretch is not None and self._stretch < MAX_STRETCH:
                event.since, event.stretch, event.gc = self._last, self._stretch, collected
            self._last, self._stretch = index, 0.0
        event.t = monotonic_seconds()
        event.step, event.dropped = index, self._dropped
        return to_dict(event)

    def _timed(self, read: Resolved) -> Timed:
        entries = read.entries
        began = entries[0][1] / NANOSECOND
        if not read.milliseconds:
            return Timed(began, None, None)
        times = in_order([int(t * MILLISECOND) for t in read.milliseconds], read.sides)
        host = [entry[1] for entry in entries]
        gap = None if read.gap is None else int(read.gap * MILLISECOND)
        event = self._gpu_time(read, host, times, gap)
        return Timed(began, event, None if read.gap is None or event is None else read.gap / 1000)

    def _gpu_time(self, read: Resolved, host: List[int], times: List[int], gap: Optional[int]) -> Optional[GpuTime]:
        step, names = self._assembled(read.entries, times)
        if step is None:
            return None
        event = GpuTime(producer="", seq=0, t=0.0, seconds=(step.ended - step.began) / NANOSECOND, every=read.every)
        event.phases = [(name, ns / NANOSECOND) for name, ns in zip(step.shape.names, step.phases)]
        work = self._queue.work(host, times, read.sides, gap)
        event.busy = sum(until - begin for begin, until in work.certain) / NANOSECOND
        event.busy_phases = by_phase(work.certain, times, names)
        event.lag = work.lag / NANOSECOND
        event.gc_phases = self._pauses.by_phase(host, names, work.unreached)
        return event

    def _assembled(self, entries: List[Entry], times: List[int]) -> Tuple[Optional[PlainStep], List[str]]:
        """Return the step with these times in place of the host's, and the phase open from each mark on."""
        process = ProcessState()
        process.phase_names = self._process.phase_names
        assembler = process.primary = Assembler(process, "", True)
        names = []
        for entry, t in zip(entries[:-1], times):
            assembler.add_entry((entry[0], t, *entry[2:]))
            names.append(assembler.current_phase())
        assembler.add_entry((END, times[-1], entries[0][2]))
        return next((event for event in assembler.events if type(event) is PlainStep), None), names


def in_order(times: List[int], sides: Tuple[int, ...]) -> List[int]:
    """Return when the device reached each mark, in order.

    A mark on another stream may be reached at any time: it is kept between those of the lane itself.
    """
    if not sides:
        return times
    out, ahead = list(times), times[-1]
    for place in reversed(range(len(times))):
        if place in sides and place < len(times) - 1:
            out[place] = min(out[place], ahead)
        else:
            ahead = out[place]
    for place in range(1, len(out)):
        out[place] = max(out[place], out[place - 1])
    return out


def by_phase(certain: List[Tuple[int, int]], times: List[int], names: List[str]) -> List[Tuple[str, float]]:
    """Return the seconds in which the queue certainly held work, by phase."""
    found: Dict[str, int] = {}
    place = 0  # both come in order
    for begin, until in certain:
        while place < len(names) - 1 and times[place + 1] <= begin:
            place += 1
        for at in range(place, len(names)):
            if times[at] >= until:
                break
            shared = min(until, times[at + 1]) - max(begin, times[at])
            if shared > 0:
                found[names[at]] = found.get(names[at], 0) + shared
    return [(name, ns / NANOSECOND) for name, ns in found.items()]
