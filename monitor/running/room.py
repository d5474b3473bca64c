"""Whether a training's control group and machine have room for trainmon's own processes beside it.

A container's limits of memory and tasks hold for all that runs in it. Where little is left it belongs to the program.
"""

from __future__ import annotations

import os

from monitor.sources.host import Cgroup
from monitor.sources.polling import text_of

MIN_BYTES = 512 << 20  # a program that imports torch takes 300 MB, the recorder with its libraries some 40
MIN_TASKS = 64  # a program with torch has a thread a core and one a worker, the recorder has eight
NEAR_BYTES = 64 << 20  # what a program may fill between the last look and the end of the recording
FILLED_BYTES = 1 << 30  # a second, at most: as fast as a core gets new pages
MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.05, 1.0
MEMORY = "/proc/meminfo"


def shortage(pid: int | None = None, cgroup: Cgroup | None = None) -> str | None:
    """Return what is short for a process (None: this one), in its control group or machine; None where nothing is."""
    memory, text, tasks = _left(pid, cgroup)
    found = [text] if memory is not None and memory < MIN_BYTES else []
    if tasks is not None and tasks < MIN_TASKS:
        found.append(f"this container has {max(0, tasks)} tasks left")
    return " and ".join(found) or None


def near_limit(pid: int, cgroup: Cgroup | None = None) -> tuple[str | None, float]:
    """Return the note on memory where next to none is left to a process, and after how many seconds to look again."""
    memory, text, _ = _left(pid, cgroup)
    if memory is None:
        return None, MAX_LOOK_SECONDS
    seconds = min(max((memory - NEAR_BYTES) / FILLED_BYTES, MIN_LOOK_SECONDS), MAX_LOOK_SECONDS)
    near = f"recording ended, memory is near its limit: {text}"
    return near if memory < NEAR_BYTES else None, seconds


def _left(pid: int | None, cgroup: Cgroup | None) -> tuple[int | None, str, int | None]:
    """Return the bytes that are left where they are fewest, that as a text, and the tasks."""
    membership = text_of(f"/proc/{pid or os.getpid()}/cgroup") or ""
    group, tasks = (cgroup or Cgroup()).room(membership)
    known = [(left, name) for left, name in ((group, "container"), (_machine(), "machine")) if left is not None]
    left, name = min(known, default=(None, ""))
    return left, f"this {name} has {max(0, left or 0) >> 20} MiB of memory left", tasks


def _machine() -> int | None:
    """Return the bytes that the machine can give to programs, by the kernel's estimate, and those of its free swap."""
    rows = dict(row.split(":", 1) for row in (text_of(MEMORY) or "").splitlines() if ":" in row)
    try:
        return sum(int(rows[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    except (LookupError, ValueError):
        return None
