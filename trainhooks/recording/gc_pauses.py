"""Measure how long Python's garbage collector pauses the program: while it runs, no other thread does.

Where a device is timed, by a callback: a collection costs two readings of the clock. Elsewhere it is estimated by how
late the background thread wakes, as a callback would be one more thing that the program can see.
"""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Tuple

from trainhooks.lane_entries import NANOSECOND, host_clock

Pause = Tuple[int, int]  # begin and end, in nanoseconds of the host clock
Callback = Callable[[str, Dict[str, Any]], None]

# Collections of young objects come by the hundred a second and take microseconds: they are part of the cost of Python.
# A collection of all objects is kept however short it is.
MIN_PAUSE_NS = 1_000_000
ALL_OBJECTS = 2  # the generation
# A busy interpreter changes threads every 5 ms, so a wake-up is late by that much anyway.
LATE_SECONDS = 0.006
MIN_LATE_WAKES = 3  # below, nothing is claimed
MIN_OTHER_WAKES = 20
RENEWED_GROWTH = 1.1  # times the seconds reported last

MAX_PAUSES = 1024  # the background thread takes them twenty times a second

_MARK = "_trainhooks_pauses"


class Pauses:
    """The collections of this process while they are watched. All but the callback runs in the background thread."""

    def __init__(self) -> None:
        self._seen: Deque[Pause] = deque(maxlen=MAX_PAUSES)  # a collection may append at any moment
        self._kept: Deque[Pause] = deque(maxlen=MAX_PAUSES)
        self._callback: Optional[Callback] = None
        self._in_steps = 0  # nanoseconds of pauses in all steps so far
        self._before: Dict[float, int] = {}  # begin of a timed step -> that sum before it
        self._last: Optional[int] = None  # that sum before the last timed step

    def watch(self, wanted: bool) -> None:
        """Start or stop watching."""
        if wanted and self._callback is None:
            self._callback = _callback(self._seen.append)
            gc.callbacks.append(self._callback)
        elif not wanted and self._callback is not None:
            _remove(self._callback)
            self._callback = None

    @property
    def watching(self) -> bool:
        return self._callback is not None

    def add_step(self, start: float, duration: float, is_timed: bool) -> None:
        """Add the next step of the run; start and duration in seconds of the host clock."""
        if is_timed:
            self._before[start] = self._in_steps
            while len(self._before) > MAX_PAUSES:
                del self._before[next(iter(self._before))]
        began, ended = int(start * NANOSECOND), int((start + duration) * NANOSECOND)
        self._in_steps += sum(until - begin for begin, until in self._within(began, ended))

    def since_last(self, start: float) -> Optional[float]:
        """Return the seconds paused in steps between the last timed step's begin and this one's; None: unknown."""
        total, previous = self._before.pop(start, None), self._last
        self._last = total if self._callback is not None else None
        return None if total is None or previous is None else (total - previous) / NANOSECOND

    def by_phase(
        self, times: Sequence[int], names: Sequence[str], certain: Sequence[Pause]
    ) -> Optional[List[Tuple[str, float]]]:
        """Return the seconds paused in one step by phase, without the time in which the device certainly had work.

        Args:
            times, names: when the host made each mark, and the phase open from each but the last.
            certain: intervals of the host clock in which the device certainly had work.

        Returns:
            None while collections are not watched.
        """
        if self._callback is None:
            return None
        paused: Dict[str, int] = {}
        for begin, until in self._within(times[0], times[-1]):
            for name, start, end in zip(names, times, times[1:]):
                idle = _outside(max(begin, start), min(until, end), certain)
                if idle > 0:
                    paused[name] = paused.get(name, 0) + idle
        return [(name, idle / NANOSECOND) for name, idle in paused.items()]

    def _within(self, began: int, ended: int) -> Iterator[Pause]:
        """Yield the pauses between two times, the newest first."""
        while self._seen:
            self._kept.append(self._seen.popleft())
        for begin, until in reversed(self._kept):
            if until <= began:
                return
            if begin < ended:
                yield max(begin, began), min(until, ended)


class LateWakes:
    """Estimate the time in collections of all objects by a thread that wakes on a clock.

    A wake-up that falls into a collection comes late by the rest of it. So each late one stands for one period, and for
    more where it is later than that. Wake-ups without a collection since the one before show how many are late anyway.

    Args:
        period: seconds between two wake-ups.
    """

    __slots__ = (
        "_collections", "_late", "_others", "_others_late", "_period", "_sent", "_slept", "_woken", "collected",
    )  # fmt: skip

    def __init__(self, period: float) -> None:
        self._period = period
        self._collections: Optional[int] = None  # of all objects, in this process so far
        self._woken = self._late = 0  # wake-ups with a collection; late ones among them
        self._others = self._others_late = 0
        self._slept = 0.0  # seconds that the late ones stand for
        self._sent: Dict[str, Any] = {}
        self.collected = 0  # collections of all objects while this was asked

    def add(self, overslept: float) -> None:
        """Add a wake-up that came so many seconds late."""
        collections = gc.get_stats()[ALL_OBJECTS]["collections"]
        new = 0 if self._collections is None else collections - self._collections
        self._collections = collections
        is_late = overslept > LATE_SECONDS
        if new <= 0:
            self._others += 1
            self._others_late += is_late
            return
        self.collected += new
        self._woken += 1
        self._late += is_late
        if is_late:
            self._slept += max(self._period, overslept + self._period / 2)

    @property
    def seconds(self) -> Optional[float]:
        """Seconds in such collections, estimated; None: unknown."""
        if self._others < MIN_OTHER_WAKES or self._late < MIN_LATE_WAKES:
            return None
        by_chance = self._woken * self._others_late / self._others
        return self._slept * max(0.0, 1.0 - by_chance / self._late)

    def facts(self) -> Dict[str, Any]:
        """Return `full` (collections) and `seconds`; the same as before until they have grown by a tenth."""
        seconds = self.seconds
        if seconds is not None and seconds > RENEWED_GROWTH * self._sent.get("seconds", 0.0):
            self._sent = {"full": self.collected, "seconds": round(seconds, 3)}
        return self._sent


def stop_watching() -> None:
    """Stop watching, in a forked child: what its parent watched is none of its own."""
    for callback in list(gc.callbacks):
        if hasattr(callback, _MARK):
            _remove(callback)


def _remove(callback: Any) -> None:
    with contextlib.suppress(ValueError):  # the program has emptied that list
        gc.callbacks.remove(callback)


def _callback(report: Callable[[Pause], None]) -> Callback:
    # The module may be gone before the last collection: the callback holds all that it uses.
    clock, least, all_objects, began = host_clock, MIN_PAUSE_NS, ALL_OBJECTS, 0

    def collecting(phase: str, info: Dict[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
        elif began:
            ended = clock()
            if ended - began >= least or info.get("generation") == all_objects:
                report((began, ended))
            began = 0

    setattr(collecting, _MARK, True)
    return collecting


def _outside(begin: int, until: int, others: Sequence[Pause]) -> int:
    """Return how much of an interval lies in none of the others."""
    left, at = 0, begin
    for start, end in sorted(others):
        if start >= until:
            break
        left += max(0, start - at)
        at = max(at, end)
    return left + max(0, until - at)
