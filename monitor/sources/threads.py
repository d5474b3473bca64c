"""The training's threads: which works most, and how long they waited for a core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from monitor.sources.attempts import Paced, attempt, text_of
from trainhooks.events import MAX_NAME, Host, clean

SHARE = 0.003  # of one core, for reading a file a thread: a large training has thousands of them

Thread = tuple[int, int]  # process and thread id


class Times(NamedTuple):
    """Seconds since a thread began."""

    ran: float
    waited: float  # could run, and had no core


class Threads:
    """What the scheduler tells of each thread, compared with the reading before."""

    def __init__(self) -> None:
        self._paced = Paced(SHARE)
        self._last: dict[Thread, Times] = {}
        self._read_at: float | None = None

    def fill(self, reading: Host, pids: Iterable[int], now: float) -> None:
        if not self._paced.due(now):
            return
        with self._paced.taken(now):
            times = {(pid, tid): each for pid in pids for tid, each in _times(pid)}
            last, before = self._read_at, self._last
            self._last, self._read_at = times, now
            if last is None or now <= last:
                return
            ran = {thread: each.ran - before[thread].ran for thread, each in times.items() if thread in before}
            waited = sum(max(0.0, times[thread].waited - before[thread].waited) for thread in ran)
            wanted = sum(max(0.0, each) for each in ran.values()) + waited
            if wanted > 0:
                reading.tree_waiting = waited / wanted
            busiest = max(ran, key=lambda thread: ran[thread], default=None)
            if busiest is not None:
                reading.tree_busiest = min(100.0, max(0.0, 100 * ran[busiest] / (now - last)))
                reading.tree_busiest_name = _name(*busiest)


def _times(pid: int) -> list[tuple[int, Times]]:
    """The times of each thread of a process; none where the kernel does not keep them."""
    found = []
    for tid in attempt(lambda: os.listdir(f"/proc/{pid}/task")) or ():
        numbers = (text_of(f"/proc/{pid}/task/{tid}/schedstat") or "").split()
        if len(numbers) >= 2 and numbers[0].isdigit() and numbers[1].isdigit():
            found.append((int(tid), Times(int(numbers[0]) / 1e9, int(numbers[1]) / 1e9)))
    return found


def _name(pid: int, tid: int) -> str:
    """`python 1234`, or `pt_data_pin 1234/1301` for a thread that is not the first of its process."""
    name = clean(text_of(f"/proc/{pid}/task/{tid}/comm") or "", MAX_NAME - 24)
    return f"{name} {pid}" if tid == pid else f"{name} {pid}/{tid}"
