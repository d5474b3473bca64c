"""What the device's lane has read, made into events. In the background thread.

The entries of a step are taken by an assembler once more, with the device's times in place of the host's: so time
belongs to the same phases by both clocks, however they nest.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks import device_delay, facts
from trainhooks.assembler import Assembler
from trainhooks.clocks import NANOSECOND, host_clock, monotonic_seconds
from trainhooks.device_delay import Delayed
from trainhooks.device_lane import DeviceLane, Entry, Resolved
from trainhooks.device_queue import Queue, Work
from trainhooks.entries import END
from trainhooks.events import Facts, GpuTime, to_dict
from trainhooks.gc_pauses import Pauses
from trainhooks.open_work import Shared

Mapping = Dict[str, Any]

MAX_KNOWN = 4096  # steps under way that are timed
MAX_WAITING = 4096  # whose times are known: the host's entries may be digested later
MAX_LOOKS = 1200  # at the stack, ten a second: those of two minutes
MAX_ROWS = 16  # places of a step that are told
MILLISECOND = 1_000_000  # nanoseconds
LONGEST = 600.0  # seconds of a stretch that is told


class Timed(NamedTuple):
    """A step by the device's clock. Which one it is by the host's, its begin and its end there say."""

    began: float  # seconds of the host's clock
    event: Optional[GpuTime]  # without its number; None: it could not be timed
    gap: Optional[float]  # seconds of the device from the begin of the step read before
    apart: bool = False  # a delay lies between the two: no stretch


class DeviceTimes:
    """Steps by both clocks, joined by when they began.

    Args:
        shared: of the process's assemblers.
        lane: the device's.
    """

    def __init__(self, shared: Shared, lane: DeviceLane) -> None:
        self._shared = shared
        self._lane = lane
        self._awaited: Dict[float, None] = {}  # begins of steps that are timed, whose number is not told yet
        self._known: Dict[float, int] = {}  # begin, as told -> index
        self._newest = 0.0  # begin of the newest step that was told, of those of the run's own thread
        self._waiting: Deque[Timed] = deque(maxlen=MAX_WAITING)
        self._looks: Deque[Tuple[int, str]] = deque(maxlen=MAX_LOOKS)
        self._queue = Queue()
        self._last: Optional[int] = None  # the step that was told before
        self._stretch: Optional[float] = None  # from its begin on, as far as it was read
        self._dropped = 0
        self._pauses = Pauses()
        self._delay = lane.delay
        self._delay_told: Optional[str] = None
        if self._delay is not None and facts.rank_facts().get("rank", 0):
            self._delay.refuse()

    def watch(self, wanted: bool) -> None:
        """Whether the device is timed: only then is garbage collection listened to."""
        self._pauses.watch(wanted)

    def looked(self, place: Optional[str]) -> None:
        """The training's stack was looked at just now."""
        if place is not None:
            self._looks.append((host_clock(), place))

    def hear(self, events: List[Mapping]) -> None:
        """Steps that the host tells of now. Those that are not timed are not kept."""
        awaited = self._begun()
        if not awaited and not self._pauses.watching:
            return
        for event in events:
            if event["kind"] == "step":
                start = event["start"]
                if "thread" not in event:
                    self._pauses.step_told(start, event.get("duration", 0.0), start in awaited)
                if start in awaited:
                    del awaited[start]
                    self._known[start] = event["index"]
                if "thread" not in event:
                    self._newest = max(self._newest, start)
        for table in (awaited, self._known):
            while len(table) > MAX_KNOWN:
                del table[next(iter(table))]

    def _begun(self) -> Dict[float, None]:
        begun, awaited = self._lane.begun, self._awaited
        while begun:
            awaited[begun.popleft() / NANOSECOND] = None
        return awaited

    def take(self) -> List[Mapping]:
        """Events of what the lane has read."""
        resolved = self._lane.resolved
        told = self._said_of_delays()
        if not resolved and not self._waiting:
            return told
        while resolved:
            read = resolved.popleft()
            step = self._made_out(read)
            if step is not None:
                self._waiting.append(step)
        self._begun()  # after that: what has been read had begun before
        for _ in range(len(self._waiting)):
            step = self._waiting.popleft()
            index = self._known.pop(step.began, None)
            if index is None and step.began > self._newest and step.began in self._awaited:
                self._waiting.append(step)  # its number comes, and only then those of later steps
                continue
            event = self._event(index, step)
            if event is not None:
                told.append(event)
        return told

    def _said_of_delays(self) -> List[Mapping]:
        said = None if self._delay is None or self._lane.said is None else self._delay.said
        if said == self._delay_told:
            return []
        self._delay_told = said
        return [to_dict(Facts("", 0, monotonic_seconds(), facts={"device_delay": said}))]

    def _event(self, index: Optional[int], step: Timed) -> Optional[Mapping]:
        """What is told of a step. One that came to nothing (an exception, a loop that was left) leaves its stretch."""
        self._awaited.pop(step.began, None)
        if step.apart:
            self._stretch = None
        if step.event is not None:
            self._stretch = None if None in (step.gap, self._stretch) else self._stretch + step.gap  # type: ignore[operator]
        if index is None:
            return None
        event = step.event
        if event is None:
            self._dropped += 1
            event = GpuTime("", 0, 0.0)
        elif event.delayed is None:
            collected = self._pauses.since_last(step.began)
            if self._stretch is not None and self._stretch < LONGEST:
                event.since, event.stretch, event.gc = self._last, self._stretch, collected
            self._last, self._stretch = index, 0.0
        event.t = monotonic_seconds()
        event.step, event.dropped = index, self._dropped
        return to_dict(event)

    def _made_out(self, read: Resolved) -> Optional[Timed]:
        """The step by the device's clock, as an assembler tells steps."""
        entries = read.entries
        began = entries[0][1] / NANOSECOND
        if not read.milliseconds:
            return Timed(began, None, None, read.apart)
        times = in_order([int(each * MILLISECOND) for each in read.milliseconds], read.sides)
        host = [entry[1] for entry in entries]
        gap = None if read.gap is None else int(read.gap * MILLISECOND)
        if read.delayed is not None:
            event = self._delayed(read, read.delayed, host, times, gap)
        else:
            event = self._usual(read, host, times, gap)
        return Timed(began, event, None if read.gap is None or event is None else read.gap / 1000, read.apart)

    def _usual(self, read: Resolved, host: List[int], times: List[int], gap: Optional[int]) -> Optional[GpuTime]:
        step, names = self._assembled(read.entries, times)
        if step is None:
            return None
        event = GpuTime("", 0, 0.0, seconds=step["duration"], every=read.every)
        event.phases = [(name, seconds) for name, seconds, _, _ in step["phases"]]
        work = self._queue.work(host, times, read.sides, gap)
        event.busy = sum(until - begin for begin, until in work.certain) / NANOSECOND
        event.busy_phases = by_phase(work.certain, times, names)
        event.lag = work.lag / NANOSECOND
        event.looks = self._looks_in(read.entries, names, work)
        event.gc_phases = self._pauses.by_phase(host, names, work.passed)
        if self._delay is not None:
            self._delay.learn(host, times, work)
        return event

    def _delayed(
        self, read: Resolved, delay: Delayed, host: List[int], times: List[int], gap: Optional[int]
    ) -> Optional[GpuTime]:
        """A step at whose begin the device was held up: its work alone, as far as the host certainly was ahead."""
        work = self._queue.work(*device_delay.with_delay(host, times, delay), shifted(read.sides), gap)
        times = device_delay.since_delay(times, delay)
        step, names = self._assembled(read.entries, times)
        found = None if step is None or read.sides else device_delay.told(host, times, names, work)
        if self._delay is not None:
            self._delay.took(delay, found)
        if found is None:
            return None
        event = GpuTime("", 0, 0.0, every=read.every, delayed=delay.milliseconds / 1000)
        event.busy, event.busy_phases = sum(found.busy.values()), list(found.busy.items())
        event.unsure = list(found.unsure.items())
        return event

    def _assembled(self, entries: List[Entry], times: List[int]) -> Tuple[Optional[Mapping], List[str]]:
        """The step with these times in place of the host's, and what goes on from each mark on."""
        shared = Shared()
        shared.phase_names = self._shared.phase_names
        assembler = shared.primary = Assembler(shared, "", True)
        names = []
        for entry, t in zip(entries[:-1], times):
            assembler.take((entry[0], t, *entry[2:]))
            names.append(assembler.where())
        assembler.take((END, times[-1], entries[0][2]))
        return next((event for event in assembler.events if event["kind"] == "step"), None), names

    def _looks_in(self, entries: List[Entry], names: List[str], work: Work) -> List[Tuple[str, str, int, int]]:
        """Where the stack stood while the host was in the step: phase, place, looks, those with no certain work."""
        began, ended = entries[0][1], entries[-1][1]
        rows: Dict[Tuple[str, str], List[int]] = {}
        for t, place in reversed(self._looks):
            if t < began:
                break
            if t < ended:
                passed = sum(entry[1] <= t for entry in entries)
                row = rows.setdefault((names[passed - 1], place), [0, 0])
                row[0] += 1
                row[1] += not work.is_certain_at(t)
        most = sorted(rows.items(), key=lambda each: -each[1][0])[:MAX_ROWS]
        return [(phase, place, looks, idle) for (phase, place), (looks, idle) in most]


def shifted(sides: Tuple[int, ...]) -> Tuple[int, ...]:
    """The places of marks where one more stands behind the first."""
    return tuple(place + bool(place) for place in sides)


def in_order(times: List[int], sides: Tuple[int, ...]) -> List[int]:
    """When the device came by each mark. One on another stream may have been passed at any time: it is kept between
    those of the lane itself, which come in order.
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
    """Seconds in which the queue certainly held work, by what went on."""
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
    return [(name, each / NANOSECOND) for name, each in found.items()]
