"""Wait for the interpreter without a say of the training in when that is.

Only one thread runs Python at a time. A thread of ours that wakes while the training runs Python waits until that lets
go: in a call that waits or computes without the interpreter, or after 5 ms. What holds it for less, a tokenizer or some
lines of Python between two operations, would never be seen, and its time be told of the operation that comes next.

So a wake-up tells whether it had to wait. After some that had to, a few more have their turn at once, by a short switch
interval: for hundredths of the time, and only while this thread waits. Who asks for the interval is told the program's.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from types import BuiltinFunctionType
from typing import Any, Callable, Iterator, Optional, Tuple, TypeVar

from trainhooks.recording.gc_room import CollectorRoom

TURN_SECONDS = 31e-6  # unlike what a program would choose: one that it sets meanwhile stays
HALF = 5e-7  # what is set is cut to microseconds
MAX_APART = 0.006  # seconds between two turns, at random: what holds the interpreter for longer is seen anyway
MAX_TURNS, MAX_SECONDS = 2, 0.05  # in a row
# Of the time, in which other threads change places more often; a short run needs some soon.
SHARE, SECONDS_AT_FIRST = 0.02, 0.05

T = TypeVar("T")


def waits() -> Optional[int]:
    """Return how often this thread has slept so far; None: unknown on this system."""
    try:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (AttributeError, OSError, ValueError):
        return None


class Turns:
    """The waits of a thread of ours.

    Args:
        sleep: sleeps at most so many seconds; returns why the thread is to return from its work, else 0.
        room: for what the thread makes while it does not wait; also the two readings around a wait make something.

    Attributes:
        was_held: whether another thread held the interpreter when the last wait was over; None: unknown.
        ended: what the last `sleep` returned.
    """

    def __init__(self, sleep: Callable[[float], int], room: CollectorRoom) -> None:
        self._sleep = sleep
        self._room = room
        self.was_held: Optional[bool] = None
        self.ended = 0
        self._first: Optional[float] = None  # when turns were first wanted
        self._spent = 0.0  # seconds with a short interval
        # While ours holds: the program's interval, what tells it, and what stands in for that.
        self._program: Optional[Tuple[float, Any, Any]] = None

    def wait(self, seconds: float) -> int:
        """Wait at most so long, and make room. Return why the thread is to return from its work, else 0."""
        before = waits()
        self._room.take_back()
        try:
            self.ended = self._sleep(seconds)
        finally:
            self._room.make()
        after = waits()
        # The wait itself is one; who finds the interpreter held sleeps once more.
        self.was_held = None if before is None or after is None else after - before > 1
        return self.ended

    def may_take(self, now: float) -> bool:
        """Return whether turns may be taken now."""
        if self._first is None:
            self._first = now
        within = self._spent <= SECONDS_AT_FIRST + SHARE * (now - self._first)
        # Who has imported it by name would read ours; nobody imports the other.
        is_kept = sys.getrefcount(sys.getswitchinterval) > sys.getrefcount(sys.call_tracing)
        return within and not is_kept and isinstance(sys.getswitchinterval, BuiltinFunctionType)

    def take(self, look: Callable[[], T]) -> Iterator[T]:
        """Take turns at random moments. Yields what `look` found in each that took the interpreter from another thread.

        Args:
            look: is to be done in some ten microseconds: then the other thread has its turn again.
        """
        until, taken, is_first = time.monotonic() + MAX_SECONDS, 0, True
        while taken < MAX_TURNS and time.monotonic() < until and not self.ended and self._room.renew_whole():
            found = self._take_one(look, MAX_APART * int.from_bytes(os.urandom(2), "big") / 65536)
            # The first follows a moment that the training chose, when it let go of the interpreter.
            if self.was_held and not is_first and not self.ended:
                taken += 1
                yield found
            is_first = False

    def _take_one(self, look: Callable[[], T], seconds: float) -> T:
        began, tells = time.monotonic(), sys.getswitchinterval
        interval = tells()

        def getswitchinterval() -> float:  # whoever keeps it is told the truth later, too
            now = tells()
            return interval if _is_ours(now) else now

        self._program = interval, tells, getswitchinterval
        sys.getswitchinterval = getswitchinterval
        sys.setswitchinterval(TURN_SECONDS + HALF)
        try:
            self.wait(seconds)
            return look()
        finally:
            self.restore()
            self._spent += time.monotonic() - began

    def restore(self) -> None:
        """Give the program its interval back, unless it has set one."""
        if self._program is None:
            return
        (interval, tells, ours), self._program = self._program, None
        if _is_ours(tells()):
            sys.setswitchinterval(interval + HALF)
        if sys.getswitchinterval is ours:
            sys.getswitchinterval = tells


def _is_ours(interval: float) -> bool:
    return abs(interval - TURN_SECONDS) < 1e-9
