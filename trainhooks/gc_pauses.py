"""How long Python's garbage collector held the program up. A collection holds the interpreter: on whichever thread it
runs, no other one launches anything meanwhile.

Only where a device is timed. A collection costs two looks at the clock; what is kept of it is two numbers.
"""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Tuple

from trainhooks.clocks import NANOSECOND, host_clock

Pause = Tuple[int, int]  # begin and end, in nanoseconds of the host's clock
Callback = Callable[[str, Dict[str, Any]], None]

# Nanoseconds. Collections of young objects come by the hundred a second and take microseconds: they are a part of what
# running Python costs. One of all objects is told however short it is.
LEAST = 1_000_000
ALL_OBJECTS = 2  # the generation
MAX_PAUSES = 1024  # kept, and waiting to be: the background thread looks twenty times a second

_MARK = "_trainhooks_pauses"


class Pauses:
    """Collections of this process, while they are listened to. All but the callback is the background thread's."""

    def __init__(self) -> None:
        self._seen: Deque[Pause] = deque(maxlen=MAX_PAUSES)  # a collection may append at any moment
        self._kept: Deque[Pause] = deque(maxlen=MAX_PAUSES)
        self._callback: Optional[Callback] = None
        self._in_steps = 0  # nanoseconds, of the steps that were told so far
        self._upto: Dict[float, int] = {}  # begin of a timed step -> that sum before it
        self._last: Optional[int] = None  # the same before the step that was timed last

    def watch(self, wanted: bool) -> None:
        """Begin to listen, or end to."""
        if wanted and self._callback is None:
            self._callback = _callback(self._seen.append)
            gc.callbacks.append(self._callback)
        elif not wanted and self._callback is not None:
            _remove(self._callback)
            self._callback = None

    @property
    def watching(self) -> bool:
        return self._callback is not None

    def step_told(self, start: float, duration: float, is_timed: bool) -> None:
        """The next step of the run, by the host's clock."""
        if is_timed:
            self._upto[start] = self._in_steps
            while len(self._upto) > MAX_PAUSES:
                del self._upto[next(iter(self._upto))]
        began, ended = int(start * NANOSECOND), int((start + duration) * NANOSECOND)
        self._in_steps += sum(until - begin for begin, until in self._within(began, ended))

    def since_last(self, start: float) -> Optional[float]:
        """Seconds in steps from the begin of the step that was asked for before to this one's; None: not known."""
        upto, before = self._upto.pop(start, None), self._last
        self._last = upto if self._callback is not None else None
        return None if upto is None or before is None else (upto - before) / NANOSECOND

    def by_phase(
        self, times: Sequence[int], names: Sequence[str], certain: Sequence[Pause]
    ) -> Optional[List[Tuple[str, float]]]:
        """Seconds in one step by what was open, but for the time in which the device certainly had work.

        Args:
            times: when the host made each mark; and what is open from each but the last on.
            certain: from when to when, by the host's clock, the device certainly had work.
        """
        if self._callback is None:
            return None
        found: Dict[str, int] = {}
        for begin, until in self._within(times[0], times[-1]):
            for name, start, end in zip(names, times, times[1:]):
                idle = _outside(max(begin, start), min(until, end), certain)
                if idle > 0:
                    found[name] = found.get(name, 0) + idle
        return [(name, idle / NANOSECOND) for name, idle in found.items()]

    def _within(self, began: int, ended: int) -> Iterator[Pause]:
        """What lies between two moments, the newest first."""
        while self._seen:
            self._kept.append(self._seen.popleft())
        for begin, until in reversed(self._kept):
            if until <= began:
                return
            if begin < ended:
                yield max(begin, began), min(until, ended)


def forget() -> None:
    """In a forked child: the parent's collections are none of its own."""
    for each in list(gc.callbacks):
        if hasattr(each, _MARK):
            _remove(each)


def _remove(callback: Any) -> None:
    with contextlib.suppress(ValueError):  # the program has emptied that list
        gc.callbacks.remove(callback)


def _callback(tell: Callable[[Pause], None]) -> Callback:
    # Nothing of the module's is asked for later: it is gone before the last collection is.
    clock, least, all_objects, began = host_clock, LEAST, ALL_OBJECTS, 0

    def collecting(phase: str, info: Dict[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
        elif began:
            ended = clock()
            if ended - began >= least or info.get("generation") == all_objects:
                tell((began, ended))
            began = 0

    setattr(collecting, _MARK, True)
    return collecting


def _outside(begin: int, until: int, others: Sequence[Pause]) -> int:
    """How much of a stretch lies in none of the others."""
    left, at = 0, begin
    for start, end in sorted(others):
        if start >= until:
            break
        left += max(0, start - at)
        at = max(at, end)
    return left + max(0, until - at)
