"""Who else works on a GPU. The driver tells pids of the host, which mean nothing inside a container."""

from __future__ import annotations

import os
from collections.abc import Set

from monitor.sources.gpu.driver import Driver, Handle
from monitor.sources.kinds import process_name
from trainhooks.events import MAX_GPU_PROCESSES, MAX_NAME, GpuProcess, clean

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the number that Linux gives the host's own


def on_the_host() -> bool:
    """Whether our pids are the host's, as the driver's are."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def processes(driver: Driver, handle: Handle, members: Set[int]) -> list[GpuProcess] | None:
    """The processes with a compute context on a device; None where the driver does not tell.

    Args:
        members: the pids of the run's process trees.
    """
    rows = driver.ask_now("nvmlDeviceGetComputeRunningProcesses", handle)
    if rows is None:
        return None
    host = on_the_host()
    found: dict[int, GpuProcess] = {}
    for row in rows[:MAX_GPU_PROCESSES]:
        pid = int(row.pid)
        ours = True if pid in members else False if host else None
        used = row.usedGpuMemory
        found[pid] = (pid, _name(driver, pid, host), None if used is None else int(used), ours)
    return list(found.values())


def _name(driver: Driver, pid: int, host: bool) -> str:
    name = process_name(pid) if host else None
    if name is None:
        told = driver.ask_now("nvmlSystemGetProcessName", pid)
        if isinstance(told, bytes):
            told = told.decode("utf-8", "replace")
        # Some drivers tell the whole command line. Its first word is enough; the rest may hold secrets.
        words = str(told or "").split()
        name = os.path.basename(words[0]) if words else ""
    return clean(name, MAX_NAME)
