"""Measure how long Python's garbage collector pauses the program: while it runs, no thread launches work.

Only where a device is timed. A collection costs two readings of the clock.
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


def forget() -> None:
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
