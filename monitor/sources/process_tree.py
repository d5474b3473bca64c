"""Read the training's process tree: CPU, memory, I/O, waiting threads, and the number of DataLoader workers."""

from __future__ import annotations

import functools
import os
import pwd
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from monitor.sources.polling import Paced, Rate, attempt, text_of
from trainhooks.protocol import events
from trainhooks.protocol.events import Host
from trainhooks.protocol.limits import MAX_NAME, clean

# The training's process tree: the given processes and all their descendants.

SCAN_SHARE = 0.01  # of one core, for the search for new processes on a host with thousands of them
IO_SHARE = 0.002
# For the pages that processes share, which are counted once. The kernel walks all page tables of a process for that: a
# second for some 100 GB. Since this version it lets the program's own calls for memory pass meanwhile.
SHARED_SHARE = 0.002
SHARED_KERNEL = (5, 10)
FILES_SHARE = 0.001
FILES_EVERY = 30.0  # seconds


class Tree:
    """Read the tree. One instance per recorder, because rates need the previous reading."""

    def __init__(self) -> None:
        self._members: dict[int, psutil.Process] = {}
        self._seconds: dict[int, float] = {}  # CPU seconds at the last reading
        self._read_at: float | None = None
        self._scan = Paced(SCAN_SHARE)
        self._family = ProcessRoles()
        self._threads = Threads()
        self._shares = Paced(SHARED_SHARE)
        self._shared: dict[int, int] = {}  # bytes of a process that are counted as others', when last read
        self._io = Paced(IO_SHARE)
        self._moved: dict[int, tuple[int, int]] = {}  # bytes read and written, by process
        self._moved_all = [0, 0]  # total bytes read and written, including ended processes
        self._rates = (Rate(), Rate())
        self._files = Paced(FILES_SHARE, FILES_EVERY)

    @property
    def members(self) -> Set[int]:
        return self._members.keys()

    def fill(self, reading: events.Host, roots: Iterable[int], trainers: Set[int], now: float) -> None:
        """Fill in the tree's values in `reading`.

        Args:
            trainers: the pids that report steps, where any do.
        """
        if self._scan.due(now) or not self._members:
            with self._scan.timed(now):
                self._find(roots)
                self._family.update(self._members, trainers)
        if len(self._members) > 1 and _counts_shared() and self._shares.due(now):
            with self._shares.timed(now):
                self._shared = {pid: _shared(process) for pid, process in self._members.items()}
        self._fill_use(reading, trainers, now)
        if reading.tree_processes is None:
            return
        reading.tree_workers, reading.tree_executors = self._family.workers, self._family.executors
        self._threads.fill(reading, self._members, now)
        if self._io.due(now):
            with self._io.timed(now):
                self._fill_io(reading, now)
        if self._files.due(now):
            with self._files.timed(now):
                counts = [attempt(process.num_fds) for process in self._members.values()]
                known = [count for count in counts if count is not None]
                reading.tree_files = sum(known) if known else None

    def _fill_use(self, reading: events.Host, trainers: Set[int], now: float) -> None:
        rss = threads = trainers_rss = stopped = 0
        ended: list[int] = []
        seconds: dict[int, float] = {}
        grown = 0.0
        for pid, process in list(self._members.items()):
            figures = attempt(lambda process=process: _figures(process))  # type: ignore[misc]
            if figures is None:
                del self._members[pid]  # it ended
                continue
            held = max(0, figures[1] - self._shared.get(pid, 0))
            rss += held
            trainers_rss += held if pid in trainers else 0
            threads += figures[2]
            stopped += figures[3] in _STOPPED
            if figures[3] == psutil.STATUS_ZOMBIE:
                ended.append(pid)
            seconds[pid] = figures[0]
            grown += figures[0] - self._before(pid, process, figures[0])
        if seconds:
            # The seconds of an ended process are among its parent's children times, so the sum stays right.
            grown -= sum(spent for pid, spent in self._seconds.items() if pid not in seconds)
            if self._read_at is not None and now > self._read_at:
                reading.tree_cpu = max(0.0, 100 * grown / (now - self._read_at))
            reading.tree_rss, reading.tree_threads, reading.tree_processes = rss or None, threads, len(seconds)
            reading.trainers_rss, reading.tree_stopped = trainers_rss or None, stopped or None
            reading.tree_ended = len(ended) or None
            reading.tree_ended_by = exit_words(max(ended)) if ended else None
        self._seconds, self._read_at = seconds, now if seconds else None

    def _before(self, pid: int, process: psutil.Process, spent: float) -> float:
        """Return the CPU seconds of a process at the last reading; for an older one not seen then, all of them."""
        known = self._seconds.get(pid)
        if known is not None or self._read_at is None:
            return known or 0.0
        started = attempt(process.create_time)
        is_new = started is not None and time.time() - started <= time.monotonic() - self._read_at
        return 0.0 if is_new else spent

    def _fill_io(self, reading: events.Host, now: float) -> None:
        """Fill in the bytes read and written. Bytes of a process before its first reading are not counted."""
        moved: dict[int, tuple[int, int]] = {}
        for pid, process in self._members.items():
            counters = attempt(process.io_counters)
            if counters is not None:
                moved[pid] = (counters.read_bytes, counters.write_bytes)
                before = self._moved.get(pid, moved[pid])
                for which in (0, 1):
                    self._moved_all[which] += max(0, moved[pid][which] - before[which])
        self._moved = moved
        totals = self._moved_all if moved else (None, None)
        reading.tree_read, reading.tree_write = (
            rate(total, now) for rate, total in zip(self._rates, totals, strict=True)
        )

    def _find(self, roots: Iterable[int]) -> None:
        processes: dict[int, psutil.Process] = {}
        for pid in roots:
            if pid in processes:
                continue
            root = attempt(lambda pid=pid: psutil.Process(pid))  # type: ignore[misc]
            if root is not None:
                processes[pid] = root
                processes.update({child.pid: child for child in attempt(lambda: root.children(recursive=True)) or ()})  # noqa: B023
        self._members = {pid: self._members.get(pid, process) for pid, process in processes.items()}


_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def exit_words(pid: int) -> str | None:
    """Return how a process ended that nothing has waited for: `exit code 1`, `SIGKILL`; None where that is unknown."""
    content = text_of(f"/proc/{pid}/stat")
    try:
        status = int(content.split()[-1]) if content else None
        if status is None:
            return None
        return signal.Signals(status & 0x7F).name if status & 0x7F else f"exit code {status >> 8}"
    except ValueError:
        return None


def _figures(process: psutil.Process) -> tuple[float, int, int, str]:
    """Return CPU seconds (including reaped children), resident bytes, threads, and its status."""
    with process.oneshot():
        times = process.cpu_times()
        rss = process.memory_info().rss
        return sum(times[:4]), rss, process.num_threads(), process.status()


def _shared(process: psutil.Process) -> int:
    """Return the bytes of a process that other processes hold as well, less its part of them; 0 where unknown."""
    read = attempt(lambda: (process.memory_info().rss, text_of(f"/proc/{process.pid}/smaps_rollup")))
    found = None if read is None or read[1] is None else _PSS.search(read[1])
    return 0 if read is None or found is None else max(0, read[0] - int(found[1]) * 1024)


_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@functools.cache
def _counts_shared() -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= SHARED_KERNEL


# The training's threads: the busiest one, and how long they waited for a core.

SHARE = 0.003  # of one core, for reading one file per thread: a large training has thousands

Thread = tuple[int, int]  # process and thread id


class Times(NamedTuple):
    """Seconds since a thread started."""

    ran: float
    waited: float  # runnable, but without a core


class Threads:
    """Read the scheduler's times of every thread, compared with the previous reading."""

    def __init__(self) -> None:
        self._paced = Paced(SHARE)
        self._last: dict[Thread, Times] = {}
        self._read_at: float | None = None

    def fill(self, reading: Host, pids: Iterable[int], now: float) -> None:
        if not self._paced.due(now):
            return
        with self._paced.timed(now):
            times = {(pid, tid): thread_times for pid in pids for tid, thread_times in _thread_times(pid)}
            last, before = self._read_at, self._last
            self._last, self._read_at = times, now
            if last is None or now <= last:
                return
            ran = {thread: spent.ran - before[thread].ran for thread, spent in times.items() if thread in before}
            waited = sum(max(0.0, times[thread].waited - before[thread].waited) for thread in ran)
            wanted = sum(max(0.0, seconds) for seconds in ran.values()) + waited
            if wanted > 0:
                reading.tree_waiting = waited / wanted
            busiest = max(ran, key=lambda thread: ran[thread], default=None)
            if busiest is not None:
                reading.tree_busiest = min(100.0, max(0.0, 100 * ran[busiest] / (now - last)))
                reading.tree_busiest_name = thread_name(*busiest)


def _thread_times(pid: int) -> list[tuple[int, Times]]:
    """Return the times of every thread of a process; empty where the kernel does not keep them."""
    rows = []
    for tid in attempt(lambda: os.listdir(f"/proc/{pid}/task")) or ():
        numbers = (text_of(f"/proc/{pid}/task/{tid}/schedstat") or "").split()
        if len(numbers) >= 2 and numbers[0].isdigit() and numbers[1].isdigit():
            rows.append((int(tid), Times(int(numbers[0]) / 1e9, int(numbers[1]) / 1e9)))
    return rows


def thread_name(pid: int, tid: int) -> str:
    """Return `python 1234`, or `pt_data_pin 1234/1301` for a thread other than the main one."""
    name = clean(text_of(f"/proc/{pid}/task/{tid}/comm") or "", MAX_NAME - 24)
    return f"{name} {pid}" if tid == pid else f"{name} {pid}/{tid}"


WORKER_NAME = "pt_data_worker"  # the name of a DataLoader worker in recent versions of torch
_SPAWNED = ("multiprocessing.spawn", "multiprocessing.forkserver")
_HELPERS = ("multiprocessing.resource_tracker", "compile_worker")
MIN_ROLE_READINGS = 3  # of a process until its role is known: between fork and exec it has its parent's name


@dataclass(frozen=True)
class Member:
    """One process of the tree: the fields that tell its role."""

    parent: int
    name: str
    command: tuple[str, ...]


def count(members: Mapping[int, Member], trainers: Set[int]) -> tuple[int | None, int | None]:
    """Return the numbers of DataLoader workers and of other processes that the trainers started; None is unknown.

    Recent versions of torch name their workers. Otherwise a worker is a process that a trainer forked (with the
    trainer's command line) or spawned with multiprocessing. Trainers, their helpers and launchers count as neither.
    Without known trainers only named workers count.
    """
    named = any(member.name == WORKER_NAME for member in members.values())
    if not trainers:
        return sum(member.name == WORKER_NAME for member in members.values()) or None, None
    workers = executors = 0
    for pid, member in members.items():
        if pid in trainers or not _descends(pid, members, trainers) or _is_helper(member.command):
            continue
        if member.name == WORKER_NAME or (not named and _is_worker(member, members, trainers)):
            workers += 1
        else:
            executors += 1
    return workers, executors


def _descends(pid: int, members: Mapping[int, Member], trainers: Set[int]) -> bool:
    for _ in range(len(members)):
        parent = members[pid].parent
        if parent in trainers:
            return True
        if parent not in members:
            return False
        pid = parent
    return False


def _is_worker(member: Member, members: Mapping[int, Member], trainers: Set[int]) -> bool:
    if member.parent not in trainers:
        return False
    parent = members.get(member.parent)
    if parent is not None and member.command == parent.command:
        return True
    return any(word in part for word in _SPAWNED for part in member.command)


def _is_helper(command: Sequence[str]) -> bool:
    return any(word in part for word in _HELPERS for part in command)


@dataclass
class _Reading:
    """What was read about a process, and how often."""

    process: psutil.Process
    member: Member
    readings: int = 1


class ProcessRoles:
    """Count workers and other processes. The role of a process is read while it is new, and then kept."""

    def __init__(self) -> None:
        self.workers: int | None = None
        self.executors: int | None = None
        self._known: dict[int, _Reading] = {}

    def update(self, processes: Mapping[int, psutil.Process], trainers: Set[int]) -> None:
        known: dict[int, _Reading] = {}
        for pid, process in processes.items():
            old = self._known.get(pid)
            if old is not None and old.process != process:
                old = None  # the pid was reused
            if old is None or old.readings < MIN_ROLE_READINGS:
                member = _member(process)
                if member is not None:
                    known[pid] = _Reading(process, member, 1 if old is None else old.readings + 1)
            else:
                known[pid] = old
        self._known = known
        self.workers = self.executors = None
        if known:
            self.workers, self.executors = count({pid: process.member for pid, process in known.items()}, trainers)


def _member(process: psutil.Process) -> Member | None:
    parent, command = attempt(process.ppid), attempt(process.cmdline)
    name = process_name(process.pid)
    return None if parent is None or command is None else Member(parent, name or "", tuple(command))


def process_user(pid: int) -> str:
    """Return the name of the user that a process runs as, the number where it has none; empty where unknown."""
    try:
        return _user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""


@functools.lru_cache(maxsize=256)  # a directory service may take a while to answer
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def process_name(pid: int) -> str | None:
    """Return the short name of a process, which it may have set itself; None where unknown."""
    name = text_of(f"/proc/{pid}/comm")
    return name.strip() if name is not None else attempt(lambda: psutil.Process(pid).name())
