"""Read which process keeps a busy host busy beside the training."""

from __future__ import annotations

import os
from collections.abc import Set

from monitor.sources.polling import Paced, attempt, text_of
from monitor.sources.process_tree import thread_name
from trainhooks.protocol.events import Host

OTHERS_SHARE = 0.002  # of one core, for reading one file per process
MIN_HOST_PERCENT = 50.0  # of the host's cores that are at work; below, nobody asks


class Others:
    """Find the process outside the training's tree that used the cores most since the last reading."""

    def __init__(self) -> None:
        self._paced = Paced(OTHERS_SHARE)
        self._last: dict[int, float] = {}
        self._read_at = 0.0

    def fill(self, reading: Host, members: Set[int], now: float) -> None:
        if (reading.cpu or 0.0) < MIN_HOST_PERCENT:
            self._last = {}
            return
        if not self._paced.due(now):
            return
        with self._paced.timed(now):
            others = {int(name) for name in attempt(lambda: os.listdir("/proc")) or () if name.isdecimal()} - members
            spent = {pid: seconds for pid in others - {os.getpid()} if (seconds := _spent(pid)) is not None}
            used = {pid: seconds - self._last[pid] for pid, seconds in spent.items() if pid in self._last}
            busiest = max(used, key=lambda pid: used[pid], default=None)
            if busiest is not None and used[busiest] > 0.0:
                reading.others_busiest = 100 * used[busiest] / (now - self._read_at)
                reading.others_busiest_name = thread_name(busiest, busiest)
            self._last, self._read_at = spent, now


def _spent(pid: int) -> float | None:
    """Return the CPU seconds of a process; None where it has ended. Its name, in parentheses, may hold anything."""
    fields = (text_of(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return attempt(lambda: (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
