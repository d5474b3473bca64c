"""Which process a recorded pid means, whether it lives, and since when: pids are reused, and count in a namespace."""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from typing import Any, Dict, List, Optional


def identity_of(pid: int) -> Dict[str, Any]:
    """Return what tells a process from any other, as it stands in `run.json` and in locks."""
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot_id": boot_id(), "pid_namespace": pid_namespace()}


def identity_alive(known: Dict[str, Any]) -> bool:
    """Return whether the process of an `identity_of` lives and is visible from here."""
    if has_foreign_pids(known):
        return False
    return process_alive(known.get("pid"), known.get("start_ticks"), known.get("boot_id"))


def has_foreign_pids(known: Dict[str, Any]) -> bool:
    """Return whether a recorded pid counts in another PID namespace (another container): here it is somebody else."""
    namespace = known.get("pid_namespace")
    return isinstance(namespace, str) and namespace != pid_namespace()


def pid_namespace() -> Optional[str]:
    """Return the name of the namespace in which this process's pids count; None where the platform has none."""
    return _namespace("pid")


def time_namespace() -> Optional[str]:
    """Return the name of the namespace that this process's monotonic clock counts in; None where there are none."""
    return _namespace("time")


def _namespace(kind: str) -> Optional[str]:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None


def process_alive(pid: Any, ticks: Any, boot: Any) -> bool:
    """Return whether exactly this process lives: same pid, same start, same boot, and not a zombie."""
    if not isinstance(pid, int) or pid <= 0 or (boot and boot != boot_id()):
        return False
    fields = _proc_stat(pid)
    if fields is not None:
        return fields[0] not in "ZX" and (ticks is None or _ticks(fields) == ticks)
    if sys.platform.startswith("linux"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> Optional[str]:
    """Return an id that changes at each boot; None where the platform has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as source:
            return source.read().strip()
    except OSError:
        return None


def start_ticks(pid: int) -> Optional[int]:
    """Return when a process started, in clock ticks since boot, alike in all time namespaces; None where unknown."""
    fields = _proc_stat(pid)
    return _ticks(fields) if fields else None


def parent(pid: int) -> Optional[int]:
    """Return the pid of a process's parent; None where unknown."""
    fields = _proc_stat(pid)
    return int(fields[1]) if fields else None


def started_monotonic(pid: int) -> Optional[float]:
    """Return when a process started, on the monotonic clock; None where unknown."""
    ticks = start_ticks(pid)
    if ticks is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - _boot_offset(os.getpid()) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age)


def _ticks(fields: List[str]) -> int:
    return int(fields[19]) - _boot_offset(os.getpid()) * os.sysconf("SC_CLK_TCK")


@lru_cache(maxsize=1)
def _boot_offset(_pid: int) -> int:
    """Return the seconds by which a process's time namespace moves the time of the boot: by zero, but in containers."""
    try:
        with open("/proc/self/timens_offsets") as source:
            rows = dict(row.split(None, 1) for row in source)
        return int(rows["boottime"].split()[0])
    except (OSError, ValueError, KeyError):  # a system without these namespaces
        return 0


def _proc_stat(pid: int) -> Optional[List[str]]:
    """Return the fields of /proc/<pid>/stat from the state on; None where there are none.

    The name before them may hold spaces and brackets.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return source.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
