"""The host and the training's process tree, read with psutil. What cannot be read is None, never 0."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psutil

from trainhooks import events

T = TypeVar("T")

SCAN_SHARE = 0.01  # of one core: how much looking for new processes may cost on a host with thousands of them


def attempt(reading: Callable[[], T]) -> T | None:
    """One optional reading; every one passes through here."""
    try:
        return reading()
    # Besides psutil's own errors, containers and trimmed kernels miss whole files or lines of them, which psutil
    # passes on as whatever tripped over the gap.
    except (psutil.Error, OSError, NotImplementedError, RuntimeError, AttributeError, LookupError, ValueError):
        return None


class Rate:
    """The growth of a counter per second; None until there are two readings."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def __call__(self, total: float | None, now: float) -> float | None:
        last, self._last = self._last, None if total is None else (total, now)
        if last is None or total is None or now <= last[1] or total < last[0]:
            return None
        return (total - last[0]) / (now - last[1])


class Tree:
    """The processes of the training: those given, and all that descend from them."""

    def __init__(self) -> None:
        self._members: dict[int, psutil.Process] = {}
        self._seconds: dict[int, float] = {}  # CPU seconds at the last reading
        self._read_at: float | None = None
        self._scan_after = 0.0

    def fill(self, reading: events.Host, roots: Iterable[int], now: float) -> None:
        """Write the tree's figures into `reading`."""
        if now >= self._scan_after or not self._members:
            began = time.perf_counter()
            self._scan(roots)
            self._scan_after = now + (time.perf_counter() - began) / SCAN_SHARE
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

    def _scan(self, roots: Iterable[int]) -> None:
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


class HostSource:
    """Reads the host; one instance a recorder, because rates need the reading before."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tree = Tree()
        self._rates = {name: Rate() for name in ("disk_read", "disk_write", "net_in", "net_out")}
        self._primed = False

    def read(self, roots: Iterable[int], now: float) -> events.Host:
        """One reading; `roots` are the training's own processes, `now` the monotonic clock."""
        reading = events.Host(producer="", seq=0, t=now)
        reading.cores = attempt(psutil.cpu_count)
        cpu = attempt(lambda: psutil.cpu_percent(interval=None))
        reading.cpu = cpu if self._primed else None  # psutil's first answer is a meaningless 0
        self._primed = True
        load = attempt(os.getloadavg)
        reading.load1 = load[0] if load else None
        memory = attempt(psutil.virtual_memory)
        if memory is not None:
            reading.memory_total, reading.memory_used = memory.total, memory.total - memory.available
        swap = attempt(psutil.swap_memory)
        reading.swap_used = swap.used if swap is not None else None
        disk = attempt(lambda: psutil.disk_usage(str(self._run)))
        reading.disk_free = disk.free if disk is not None else None
        for name, total in {**_disk_totals(), **_network_totals()}.items():
            setattr(reading, name, self._rates[name](total, now))
        self._tree.fill(reading, roots, now)
        return reading


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
