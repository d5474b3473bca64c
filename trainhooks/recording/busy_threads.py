"""Find a thread beside the one that trains that keeps the interpreter busy. In the background thread.

Only one thread runs Python at a time. Beside a thread that always wants to, each call of torch waits for its turn, up
to 5 ms. Two measurements tell: how late the background thread wakes, since it has to wait for its turn as well, and
the CPU time of each thread by the kernel.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from statistics import median
from typing import Any, Deque, Dict, Optional

from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.recording.frames import thread_place

PERIOD_SECONDS = 2.0  # between two readings of the threads' CPU time, which counts in hundredths
MIN_WAKES = 20  # since the last reading
# A thread that wants to go on gets its turn after 5 ms, whoever runs. A wake-up alone comes within a tenth of that.
MIN_LATE_SECONDS = 0.003
MIN_SHARE = 0.5  # of one core, for a thread to be called busy
MAX_THREADS = 100  # that are read
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class BusyThreads:
    """Ask `facts` now and then for the busiest thread. `add` each wake-up."""

    def __init__(self) -> None:
        self._late: Deque[float] = deque(maxlen=4 * MIN_WAKES)
        self._seconds: Dict[int, float] = {}  # of CPU, by thread
        self._read_at: Optional[float] = None
        self._found: Dict[str, Any] = {}

    def add(self, overslept: float) -> None:
        """Add a wake-up that came so many seconds late."""
        self._late.append(overslept)

    def facts(self, now: float, training: Optional[int]) -> Dict[str, Any]:
        """Return name, share of a core, seconds late and place of a thread that holds the interpreter; empty: none.

        Args:
            training: the id of the thread that trains.
        """
        if self._read_at is not None and now - self._read_at < PERIOD_SECONDS:
            return self._found
        elapsed = None if self._read_at is None else now - self._read_at
        late = median(self._late) if len(self._late) >= MIN_WAKES else 0.0
        before, self._seconds, self._read_at = self._seconds, {}, now
        busiest: Optional[threading.Thread] = None
        most = 0.0
        for thread in list(threading._active.values())[:MAX_THREADS]:  # type: ignore[attr-defined]  # without its lock
            number = thread.native_id
            seconds = None if number is None else _cpu_seconds(number)
            if number is None or seconds is None:
                continue
            self._seconds[number] = seconds
            spent = seconds - before.get(number, seconds)
            if spent > most and thread.ident != training:
                busiest, most = thread, spent
        self._late.clear()
        if busiest is not None and elapsed and most >= MIN_SHARE * elapsed and late >= MIN_LATE_SECONDS:
            place = thread_place(busiest.ident or 0)
            name = clean(str(busiest.name), MAX_NAME)
            self._found = {"name": name, "share": round(min(1.0, most / elapsed), 2), "late": round(late, 4)}
            self._found["place"] = None if place is None else str(place)
        return self._found


def _cpu_seconds(thread: int) -> Optional[float]:
    """Return the CPU seconds of a thread of this process by its id in the kernel; None: unknown."""
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            fields = file.read(1024).rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    except (OSError, ValueError, IndexError):
        return None
