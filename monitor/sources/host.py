"""The host and the training's process tree. What cannot be read is None, never 0."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Set
from pathlib import Path

import psutil

from monitor.sources.attempts import attempt, text_of
from monitor.sources.cgroup import Cgroup
from monitor.sources.rates import Rate
from monitor.sources.tree import Tree
from trainhooks import events, rundir

SHARED_MEMORY = "/dev/shm"


class HostSource:
    """Reads the host; one instance a recorder, because rates need the reading before."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tree = Tree()
        self._cgroup = Cgroup()
        names = ("disk_read", "disk_write", "net_in", "net_out", "swap_in", "swap_out", "cpu_stolen")
        self._rates = {name: Rate() for name in names}
        self._primed = False

    @property
    def members(self) -> Set[int]:
        """The pids of the training's process trees, as of the last reading. For any thread."""
        return frozenset(tuple(self._tree.members))

    def read(self, roots: Iterable[int], now: float) -> events.Host:
        """One reading; `roots` are the training's own processes, `now` the monotonic clock."""
        roots = list(roots)
        reading = events.Host(producer="", seq=0, t=now)
        self._fill_machine(reading)
        totals = {**_disk_totals(), **_network_totals(), **_swap_totals(), "cpu_stolen": _stolen(reading.cores)}
        for name, total in totals.items():
            setattr(reading, name, self._rates[name](total, now))
        if roots:
            self._fill_surroundings(reading, roots[0], now)
        self._tree.fill(reading, roots, _trainers(self._run), now)
        return reading

    def _fill_machine(self, reading: events.Host) -> None:
        reading.cores = attempt(psutil.cpu_count)
        cpu = attempt(lambda: psutil.cpu_percent(interval=None))
        reading.cpu = cpu if self._primed else None  # psutil's first answer is a meaningless 0
        self._primed = True
        load = attempt(os.getloadavg)
        reading.load1 = load[0] if load else None
        reading.runnable = attempt(lambda: int((text_of("/proc/loadavg") or "").split()[3].split("/")[0]))
        memory = attempt(psutil.virtual_memory)
        if memory is not None:
            reading.memory_total, reading.memory_used = memory.total, memory.total - memory.available
        swap = attempt(psutil.swap_memory)
        reading.swap_used = swap.used if swap is not None else None
        reading.disk_free = _free(str(self._run))
        shared = attempt(lambda: os.statvfs(SHARED_MEMORY))
        if shared is not None and shared.f_blocks:
            reading.shm_total = shared.f_frsize * shared.f_blocks
            reading.shm_used = shared.f_frsize * (shared.f_blocks - shared.f_bfree)
        reading.pressure_cpu, reading.pressure_io, reading.pressure_memory = map(pressure, ("cpu", "io", "memory"))

    def _fill_surroundings(self, reading: events.Host, pid: int, now: float) -> None:
        """What the training is confined to, as its first process is."""
        limits = self._cgroup.read(pid, now)
        reading.cpu_limit, reading.cpu_throttled = limits.cpus, limits.throttled
        reading.memory_limit, reading.memory_limited = limits.memory, limits.memory_used
        works_in = attempt(lambda: os.readlink(f"/proc/{pid}/cwd"))
        reading.work_free = None if works_in is None else _free(works_in)


def pressure(resource: str) -> float | None:
    """Percent of the last ten seconds in which some task of the machine waited for `resource`."""
    first = (text_of(f"/proc/pressure/{resource}") or "").partition("\n")[0]
    pairs = dict(word.split("=", 1) for word in first.split() if "=" in word)
    return attempt(lambda: float(pairs["avg10"])) if first.startswith("some") else None


def _trainers(run: Path) -> Set[int]:
    """The processes that report to the run, those that have ended included."""
    owners = (rundir.read_json(lock) or {} for lock in rundir.rank_locks(run))
    return {owner["pid"] for owner in owners if isinstance(owner.get("pid"), int)}


def _free(directory: str) -> int | None:
    return attempt(lambda: psutil.disk_usage(directory).free)


def _swap_totals() -> dict[str, float | None]:
    """Bytes that went from and to the swap space."""
    rows = dict(row.split(" ", 1) for row in (text_of("/proc/vmstat") or "").splitlines() if " " in row)
    page = attempt(lambda: os.sysconf("SC_PAGE_SIZE")) or 4096
    return {
        "swap_in": attempt(lambda: float(page * int(rows["pswpin"]))),
        "swap_out": attempt(lambda: float(page * int(rows["pswpout"]))),
    }


def _stolen(cores: int | None) -> float | None:
    """Percent of the machine, times seconds, that went to other virtual machines; None where nobody tells."""
    seconds = attempt(lambda: psutil.cpu_times().steal)
    return None if seconds is None or not cores else 100.0 * seconds / cores


def _disk_totals() -> dict[str, float | None]:
    disks = attempt(lambda: psutil.disk_io_counters(perdisk=True)) or {}
    if sys.platform.startswith("linux"):
        # Partitions and stacked devices (LVM, RAID, loop) would count the same bytes again.
        disks = {name: io for name, io in disks.items() if os.path.exists(f"/sys/block/{name}/device")}
    if not disks:
        return {"disk_read": None, "disk_write": None}
    return {
        "disk_read": sum(io.read_bytes for io in disks.values()),
        "disk_write": sum(io.write_bytes for io in disks.values()),
    }


def _network_totals() -> dict[str, float | None]:
    cards = attempt(lambda: psutil.net_io_counters(pernic=True)) or {}
    loopback = {name for name, addresses in (attempt(psutil.net_if_addrs) or {}).items() if _is_loopback(addresses)}
    outward = [io for name, io in cards.items() if name not in loopback]
    if not outward:
        return {"net_in": None, "net_out": None}
    return {"net_in": sum(io.bytes_recv for io in outward), "net_out": sum(io.bytes_sent for io in outward)}


def _is_loopback(addresses: Iterable[object]) -> bool:
    return any(
        getattr(a, "family", None) == socket.AF_INET and str(getattr(a, "address", "")).startswith("127.")
        for a in addresses
    )
