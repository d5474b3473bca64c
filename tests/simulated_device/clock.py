"""The host's clock, made virtual: it moves only where the script or the device says that time passes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

SECOND = 1_000_000_000  # nanoseconds, of which everything here is counted
NEVER = 1 << 62

# Modules that wait by the machine's own clock. They bind it when they are imported, so they are imported before ours
# takes its place; what waits in C (locks, select) is not touched by it at all.
_REAL = ("asyncio", "concurrent.futures", "multiprocessing", "queue", "selectors", "socket", "subprocess", "threading")

# The host's clocks under all the names by which the hooks may ask for them.
_NANOSECONDS = ("monotonic_ns", "perf_counter_ns")
_SECONDS = ("monotonic", "perf_counter")


class Clock:
    """Nanoseconds since the machine was started, as far as the training is told."""

    __slots__ = ("_call", "_call_at", "_since", "now")

    def __init__(self, now: int) -> None:
        self.now = now
        self._since = now
        self._call: Callable[[], None] = lambda: None
        self._call_at = NEVER

    def call_at(self, moment: int, call: Callable[[], None]) -> None:
        """Call this once, where time comes to `moment`: in the midst of a wait, if it is a long one."""
        self._call_at, self._call = moment, call

    def pass_by(self, nanoseconds: int) -> None:
        """Time in which the host did something."""
        until = self.now + nanoseconds
        while self._call_at <= until:
            self.now, self._call_at = max(self.now, self._call_at), NEVER
            self._call()
        self.now = max(self.now, until)

    def wait_until(self, moment: int) -> int:
        """Time in which the host waited for `moment`. Returns how long that was."""
        waited = moment - self.now
        if waited <= 0:
            return 0
        self.pass_by(waited)
        return waited

    @property
    def elapsed(self) -> int:
        """Nanoseconds since this clock was made."""
        return self.now - self._since

    def nanoseconds(self) -> int:
        return self.now

    def seconds(self) -> float:
        return self.now / SECOND


def install_clock() -> Clock:
    """In place of `time.monotonic` and its kin, for every module that is imported from here on.

    It begins at the real time, so that what the system tells of this process (when it was started) is not in its
    future. `time.time_ns` goes with it: traces are told by that. `time.time` and `time.sleep` stay as they are: the
    first is for display, the second is for those who wait for the background thread, which lives in real time.
    """
    if "trainhooks.lane_entries" in sys.modules:
        raise RuntimeError("the hooks have bound the real clock already: begin before trainhooks is imported")
    for name in _REAL:
        __import__(name)
    clock, behind = Clock(time.monotonic_ns()), time.time_ns() - time.monotonic_ns()
    time.time_ns = lambda: clock.now + behind
    for name in _NANOSECONDS:
        setattr(time, name, clock.nanoseconds)
    for name in _SECONDS:
        setattr(time, name, clock.seconds)
    return clock
