"""Read the host and the training's process tree. What cannot be read is None, never 0."""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

import psutil

from monitor.sources.other_processes import Others
from monitor.sources.polling import Rate, attempt, text_of
from monitor.sources.process_tree import Tree
from trainhooks.protocol import events, process_identity, rundir
from trainhooks.protocol.limits import MAX_INTEGER

# The limits of the training's control group, version 1 or 2. Both "no limit" and "unknown" are None.

ROOT = Path("/sys/fs/cgroup")


@dataclass
class Limits:
    """Limits and usage of a control group."""

    cpus: float | None = None
    throttled: float | None = None  # share of the time since the last reading
    memory: int | None = None
    memory_used: int | None = None


KINDS_OF_FILES = ("active", "inactive")  # in memory: the kernel drops both where memory is short


class Cgroup:
    """The limits that hold for one process."""

    def __init__(self, root: Path = ROOT) -> None:
        # Strings: pathlib interns the parts of paths, and that table grows.
        self._root = str(root)
        self._throttled = Rate()

    def read(self, pid: int, now: float, membership: str | None = None) -> Limits:
        """
        Args:
            membership: the content of /proc/PID/cgroup, where it is known already.
        """
        rows = membership if membership is not None else text_of(f"/proc/{pid}/cgroup") or ""
        groups = _groups(rows)
        limits = Limits()
        if os.path.exists(f"{self._root}/cgroup.controllers"):
            self._read_unified(self._root, groups.get("", "/"), limits, now)
        else:
            self._read_separate(groups, limits, now)
        return limits

    def oom_kills(self, membership: str) -> int | None:
        """Return how many processes of a group the kernel has killed so far, out of memory; None where unknown.

        A group's counter has its own processes and those of groups within, whatever limit or lack killed them.
        """
        groups = _groups(membership)
        if os.path.exists(f"{self._root}/cgroup.controllers"):
            group = next(_upwards(self._root, groups.get("", "/")))
            return _read_row(f"{group}/memory.events", "oom_kill")
        group = next(_upwards(self._mount("memory"), groups.get("memory", "/")))
        return _read_row(f"{group}/memory.oom_control", "oom_kill")

    def room(self, membership: str) -> tuple[int | None, int | None]:
        """Return how many bytes and tasks the group of a process and those around it leave; None without a limit.

        Files that the kernel keeps in memory and may drop count as room.
        """
        groups = _groups(membership)
        unified = os.path.exists(f"{self._root}/cgroup.controllers")
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        prefix = "" if unified else "total_"
        memory, tasks = [], []
        mounts = (self._root, self._root) if unified else (self._mount("memory"), self._mount("pids"))
        for directory in _upwards(mounts[0], groups.get("" if unified else "memory", "/")):
            limit, used = (_read_whole(f"{directory}/{name}") for name in names)
            if limit is not None and used is not None and limit < MAX_INTEGER:
                cached = [_read_row(f"{directory}/memory.stat", f"{prefix}{kind}_file") for kind in KINDS_OF_FILES]
                memory.append(limit - used + sum(each or 0 for each in cached))
        for directory in _upwards(mounts[1], groups.get("" if unified else "pids", "/")):
            limit, used = (_read_whole(f"{directory}/pids.{name}") for name in ("max", "current"))
            if limit is not None and used is not None:
                tasks.append(limit - used)
        return min(memory, default=None), min(tasks, default=None)

    def _read_unified(self, mount: str, group: str, limits: Limits, now: float) -> None:
        """Read version 2: one tree; the narrowest limit of a group and its parents applies."""
        throttled = None
        for directory in _upwards(mount, group):
            quota, _, period = (text_of(f"{directory}/cpu.max") or "").partition(" ")
            cpus = attempt(lambda quota=quota, period=period: int(quota) / int(period))  # type: ignore[misc]
            if cpus is not None and int(period) > 0 < cpus and (limits.cpus is None or cpus < limits.cpus):
                limits.cpus = cpus
                throttled = _read_row(f"{directory}/cpu.stat", "throttled_usec")
            _take_memory(limits, f"{directory}/memory.max", f"{directory}/memory.current")
        limits.throttled = _share(self._throttled(None if throttled is None else throttled / 1e6, now))

    def _read_separate(self, groups: dict[str, str], limits: Limits, now: float) -> None:
        """Read version 1: a tree for each resource."""
        throttled = None
        for directory in _upwards(self._mount("cpu", "cpu,cpuacct"), groups.get("cpu", "/")):
            quota, period = (_read_whole(f"{directory}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota is None or period is None or quota <= 0 or period <= 0:
                continue
            if limits.cpus is None or quota / period < limits.cpus:
                limits.cpus = quota / period
                throttled = _read_row(f"{directory}/cpu.stat", "throttled_time")
        limits.throttled = _share(self._throttled(None if throttled is None else throttled / 1e9, now))
        for directory in _upwards(self._mount("memory"), groups.get("memory", "/")):
            _take_memory(limits, f"{directory}/memory.limit_in_bytes", f"{directory}/memory.usage_in_bytes")

    def _mount(self, *names: str) -> str:
        places = [f"{self._root}/{name}" for name in names]
        return next(filter(os.path.isdir, places), places[0])


def _groups(rows: str) -> dict[str, str]:
    """Return the path of a process's group by controller; version 2 has the empty name."""
    groups = {}
    for row in rows.splitlines():
        _, _, rest = row.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            groups[controller] = path.strip()
    return groups


def _upwards(mount: str, group: str) -> Iterator[str]:
    """Yield the directories of a group and its parents. In a container its own group is the mount itself."""
    parts = [part for part in group.split("/") if part]
    if ".." in parts or not os.path.isdir("/".join([mount, *parts])):
        parts = []
    for depth in range(len(parts), -1, -1):
        yield "/".join([mount, *parts[:depth]])


def _take_memory(limits: Limits, limit_file: str, used_file: str) -> None:
    limit = _read_whole(limit_file)
    if limit is None or not 0 < limit < MAX_INTEGER:  # "max", or in version 1 a huge number
        return
    if limits.memory is None or limit < limits.memory:
        limits.memory, limits.memory_used = limit, _read_whole(used_file)


def _read_whole(path: str) -> int | None:
    text = text_of(path)
    return None if text is None else attempt(lambda: int(text))


def _read_row(path: str, name: str) -> int | None:
    for row in (text_of(path) or "").splitlines():
        key, _, value = row.partition(" ")
        if key == name:
            return attempt(lambda value=value: int(value))  # type: ignore[misc]
    return None


def _share(rate: float | None) -> float | None:
    return None if rate is None or not math.isfinite(rate) else min(rate, 1.0)


SHARED_MEMORY = "/dev/shm"


class HostSource:
    """Read the host. One instance per recorder, because rates need the previous reading."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tree = Tree()
        self._others = Others()
        self._cgroup = Cgroup()
        names = ("disk_read", "disk_write", "net_in", "net_out", "swap_in", "swap_out", "cpu_stolen", "output")
        self._rates = {name: Rate() for name in names}
        self._primed = False

    @property
    def members(self) -> Set[int]:
        """Return the pids of the training's process trees at the last reading. Thread-safe."""
        return frozenset(tuple(self._tree.members))

    def read(self, roots: Iterable[int], now: float) -> events.Host:
        """Return one reading; `roots` are the pids of the training's processes, `now` is monotonic time."""
        roots = list(roots)
        reading = events.Host(producer="", seq=0, t=now)
        self._fill_machine(reading)
        totals = {**_disk_totals(), **_network_totals(), **_swap_totals(), "cpu_stolen": _stolen_percent(reading.cores)}
        totals["output"] = attempt(lambda: os.stat(self._run / rundir.CONSOLE).st_size)
        for name, total in totals.items():
            setattr(reading, name, self._rates[name](total, now))
        if roots:
            self._fill_surroundings(reading, roots[0], now)
        self._tree.fill(reading, roots, _trainers(self._run), now)
        self._others.fill(reading, self._tree.members, now)
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
        reading.disk_free = _free_bytes(str(self._run))
        shared = attempt(lambda: os.statvfs(SHARED_MEMORY))
        if shared is not None and shared.f_blocks:
            reading.shm_total = shared.f_frsize * shared.f_blocks
            reading.shm_used = shared.f_frsize * (shared.f_blocks - shared.f_bfree)
        reading.pressure_cpu, reading.pressure_io, reading.pressure_memory = map(read_pressure, ("cpu", "io", "memory"))

    def _fill_surroundings(self, reading: events.Host, pid: int, now: float) -> None:
        """Fill in the limits of the training's first process."""
        limits = self._cgroup.read(pid, now)
        reading.cpu_limit, reading.cpu_throttled = limits.cpus, limits.throttled
        reading.memory_limit, reading.memory_limited = limits.memory, limits.memory_used
        works_in = attempt(lambda: os.readlink(f"/proc/{pid}/cwd"))
        reading.work_free = None if works_in is None else _free_bytes(works_in)


def read_pressure(resource: str) -> float | None:
    """Return the percentage of the last ten seconds in which some task waited for `resource`."""
    first = (text_of(f"/proc/pressure/{resource}") or "").partition("\n")[0]
    pairs = dict(word.split("=", 1) for word in first.split() if "=" in word)
    return attempt(lambda: float(pairs["avg10"])) if first.startswith("some") else None


def _trainers(run: Path) -> Set[int]:
    """Return the processes that report to the run, including ended ones."""
    owners = (rundir.read_json(lock) or {} for lock in rundir.rank_locks(run))
    return {
        owner["pid"]
        for owner in owners
        if isinstance(owner.get("pid"), int) and not process_identity.has_foreign_pids(owner)
    }


def _free_bytes(directory: str) -> int | None:
    return attempt(lambda: psutil.disk_usage(directory).free)


def _swap_totals() -> dict[str, float | None]:
    """Return the bytes read from and written to swap."""
    rows = dict(row.split(" ", 1) for row in (text_of("/proc/vmstat") or "").splitlines() if " " in row)
    page = attempt(lambda: os.sysconf("SC_PAGE_SIZE")) or 4096
    return {
        "swap_in": attempt(lambda: float(page * int(rows["pswpin"]))),
        "swap_out": attempt(lambda: float(page * int(rows["pswpout"]))),
    }


def _stolen_percent(cores: int | None) -> float | None:
    """Return the CPU time stolen by other virtual machines, in percent of the machine x seconds; None if unknown."""
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
