"""What the GPU clock has read, made into events. In the background thread.

The entries of a step are taken by an assembler once more, with the GPU's times in place of the host's: so time belongs
to the same phases by both clocks, however they nest.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from trainhooks import gpu_clock
from trainhooks.assembler import Assembler
from trainhooks.clocks import NANOSECOND, monotonic_seconds
from trainhooks.entries import END
from trainhooks.events import GpuTime, to_dict
from trainhooks.gpu_clock import Resolved
from trainhooks.open_work import Shared

Mapping = Dict[str, Any]

MAX_KNOWN = 512  # steps that the host told of, of which the GPU's times may still come
MAX_WAITING = 4096  # the reverse: the host's entries may be digested later, and no more than these are kept
MILLISECOND = 1_000_000  # nanoseconds
# The two clocks drift apart by up to some 50 millionths: over this long by less than SLACK.
WINDOW = 5 * NANOSECOND
SLACK = 300_000  # nanoseconds


class GpuTimes:
    """Steps by both clocks, joined by when they began."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._known: Dict[Tuple[float, float], int] = {}  # begin and end, as told -> index
        self._newest = 0.0  # begin of the newest step that was told, of those of the run's own thread
        self._waiting: Deque[Mapping] = deque(maxlen=MAX_WAITING)
        self._queue = Queue()
        self._dropped = 0

    def hear(self, events: List[Mapping]) -> None:
        """Steps that the host tells of now."""
        for event in events:
            if event["kind"] == "step":
                self._known[event["start"], event["start"] + event["duration"]] = event["index"]
                if "thread" not in event:
                    self._newest = event["start"]
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def take(self) -> List[Mapping]:
        """Events of what the GPU clock has read."""
        while gpu_clock.resolved:
            step = self._made_out(gpu_clock.resolved.popleft())
            if step is not None:
                self._waiting.append(step)
        told = []
        for _ in range(len(self._waiting)):
            event = self._waiting.popleft()
            index = self._known.pop(event["of"], None)
            if index is not None:
                told.append(self._event(index, event))
            elif event["of"][0] > self._newest:  # else it came to nothing: an exception, or a loop that was left
                self._waiting.append(event)
        return told

    def _event(self, index: int, step: Mapping) -> Mapping:
        event = GpuTime("", 0, monotonic_seconds(), step=index)
        if "phases" in step:
            event.seconds, event.busy = step["duration"], step["busy"]
            event.phases = [(name, seconds) for name, seconds, _, _ in step["phases"]]
        else:
            self._dropped += 1
        event.dropped = self._dropped
        return to_dict(event)

    def _made_out(self, read: Resolved) -> Optional[Mapping]:
        """The step by the GPU's clock, as an assembler tells steps; `of` says which one it is by the host's."""
        entries = read.entries
        began, ended = entries[0][1], entries[-1][1]
        of = (began / NANOSECOND, began / NANOSECOND + (ended - began) / NANOSECOND)
        if not read.milliseconds:
            return {"of": of}
        times = [int(each * MILLISECOND) for each in read.milliseconds]
        shared = Shared()
        shared.phase_names = self._shared.phase_names
        assembler = shared.primary = Assembler(shared, "", True)
        for entry, t in zip(entries[:-1], times):
            assembler.take((entry[0], t, *entry[2:]))
        assembler.take((END, times[-1], entries[0][2]))
        step = next((event for event in assembler.events if event["kind"] == "step"), None)
        if step is None:
            return None
        step["of"] = of
        gap = None if read.gap is None else int(read.gap * MILLISECOND)
        step["busy"] = self._queue.busy([entry[1] for entry in entries], times, gap) / NANOSECOND
        return step


class Queue:
    """For how long the GPU certainly had work in its queue: a lower bound.

    The GPU comes by an event after the host has recorded it; how much later is the work that was queued by then, but
    for the distance of the two clocks' zeros. The least that was seen of late is taken for it: an overestimate, where
    the GPU was never seen to wait for the host, so that the bound holds.
    """

    def __init__(self) -> None:
        self._zero = 0  # on the GPU's clock: when the step before began
        self._least: Deque[Tuple[int, int]] = deque()  # host time; GPU's time minus the host's

    def busy(self, host: List[int], gpu: List[int], gap: Optional[int]) -> int:
        """Nanoseconds of a step.

        Args:
            host, gpu: when each boundary was recorded, and when the GPU came by; the GPU's from 0 on.
            gap: from the begin of the step before to this one's, by the GPU; None: not known.
        """
        if gap is None:
            self._least.clear()
        self._zero += gap or 0
        zero, end = self._zero, self._zero + gpu[-1]
        least = self._least
        least.append((host[-1], min(zero + there - here for here, there in zip(host, gpu))))
        while least[0][0] < host[-1] - WINDOW:
            least.popleft()
        distance = min(each for _, each in least)
        total, upto = 0, zero
        for here, there in zip(host, gpu):
            begin, until = max(here + distance, upto), min(zero + there - SLACK, end)
            if until > begin:
                total += until - begin
                upto = until
        return total
