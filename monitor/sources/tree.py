"""The training's process tree: the processes given, and all that descend from them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Set

import psutil

from monitor.sources.attempts import Paced, attempt
from monitor.sources.kinds import Family
from monitor.sources.rates import Rate
from monitor.sources.threads import Threads
from trainhooks import events

SCAN_SHARE = 0.01  # of one core: how much looking for new processes may cost on a host with thousands of them
IO_SHARE = 0.002
FILES_SHARE = 0.001
FILES_EVERY = 30.0  # seconds


class Tree:
    """Reads the tree; one instance a recorder, because rates need the reading before."""

    def __init__(self) -> None:
        self._members: dict[int, psutil.Process] = {}
        self._seconds: dict[int, float] = {}  # CPU seconds at the last reading
        self._read_at: float | None = None
        self._scan = Paced(SCAN_SHARE)
        self._family = Family()
        self._threads = Threads()
        self._io = Paced(IO_SHARE)
        self._moved: dict[int, tuple[int, int]] = {}  # bytes read and written, by process
        self._moved_all = [0, 0]  # what all of them moved, those that have ended included
        self._rates = (Rate(), Rate())
        self._files = Paced(FILES_SHARE, FILES_EVERY)

    @property
    def members(self) -> Set[int]:
        return self._members.keys()

    def fill(self, reading: events.Host, roots: Iterable[int], trainers: Set[int], now: float) -> None:
        """Write the tree's figures into `reading`.

        Args:
            trainers: the pids that report steps, where any do.
        """
        if self._scan.due(now) or not self._members:
            with self._scan.taken(now):
                self._find(roots)
                self._family.look(self._members, trainers)
        self._fill_use(reading, now)
        if reading.tree_processes is None:
            return
        reading.tree_workers, reading.tree_executors = self._family.workers, self._family.executors
        self._threads.fill(reading, self._members, now)
        if self._io.due(now):
            with self._io.taken(now):
                self._fill_io(reading, now)
        if self._files.due(now):
            with self._files.taken(now):
                counts = [attempt(process.num_fds) for process in self._members.values()]
                known = [count for count in counts if count is not None]
                reading.tree_files = sum(known) if known else None

    def _fill_use(self, reading: events.Host, now: float) -> None:
        rss = threads = 0
        seconds: dict[int, float] = {}
        grown = 0.0
        for pid, process in list(self._members.items()):
            figures = attempt(lambda process=process: _figures(process))  # type: ignore[misc]
            if figures is None:
                del self._members[pid]  # it has ended
                continue
            rss += figures[1]
            threads += figures[2]
            seconds[pid] = figures[0]
            grown += figures[0] - self._before(pid, process, figures[0])
        if seconds:
            # An ended process took its seconds along, but its parent has them among its children's: the sum holds.
            grown -= sum(spent for pid, spent in self._seconds.items() if pid not in seconds)
            if self._read_at is not None and now > self._read_at:
                reading.tree_cpu = max(0.0, 100 * grown / (now - self._read_at))
            reading.tree_rss, reading.tree_threads, reading.tree_processes = rss, threads, len(seconds)
        self._seconds, self._read_at = seconds, now if seconds else None

    def _before(self, pid: int, process: psutil.Process, spent: float) -> float:
        """The CPU seconds of a process at the last reading: all of them, for one that was overlooked then."""
        known = self._seconds.get(pid)
        if known is not None or self._read_at is None:
            return known or 0.0
        started = attempt(process.create_time)
        is_new = started is not None and time.time() - started <= time.monotonic() - self._read_at
        return 0.0 if is_new else spent

    def _fill_io(self, reading: events.Host, now: float) -> None:
        """Bytes from and to disks. A process that is new to us brings no past along: it may have run for long."""
        moved: dict[int, tuple[int, int]] = {}
        for pid, process in self._members.items():
            found = attempt(process.io_counters)
            if found is not None:
                moved[pid] = (found.read_bytes, found.write_bytes)
                before = self._moved.get(pid, moved[pid])
                for which in (0, 1):
                    self._moved_all[which] += max(0, moved[pid][which] - before[which])
        self._moved = moved
        totals = self._moved_all if moved else (None, None)
        reading.tree_read, reading.tree_write = (
            rate(total, now) for rate, total in zip(self._rates, totals, strict=True)
        )

    def _find(self, roots: Iterable[int]) -> None:
        found: dict[int, psutil.Process] = {}
        for pid in roots:
            if pid in found:
                continue
            root = attempt(lambda pid=pid: psutil.Process(pid))  # type: ignore[misc]
            if root is not None:
                found[pid] = root
                found.update({child.pid: child for child in attempt(lambda: root.children(recursive=True)) or ()})  # noqa: B023
        self._members = {pid: self._members.get(pid, process) for pid, process in found.items()}


def _figures(process: psutil.Process) -> tuple[float, int, int]:
    """CPU seconds (its reaped children's among them), resident bytes, threads."""
    with process.oneshot():
        times = process.cpu_times()
        rss = process.memory_info().rss
        return sum(times[:4]), rss, process.num_threads()
