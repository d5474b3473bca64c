"""Whether the control group of a training has room for trainmon's own processes beside it.

A container's limits of memory and tasks hold for all that runs in it. Where little is left it belongs to the program.
"""

from __future__ import annotations

import os

from monitor.sources.host import Cgroup
from monitor.sources.polling import text_of

MIN_BYTES = 512 << 20  # a program that imports torch takes 300 MB, the recorder with its libraries some 40
MIN_TASKS = 64  # a program with torch has a thread a core and one a worker, the recorder has eight


def shortage(pid: int | None = None, cgroup: Cgroup | None = None) -> str | None:
    """Return what is short in the control group of a process (None: this one); None where nothing is."""
    memory, tasks = (cgroup or Cgroup()).room(text_of(f"/proc/{pid or os.getpid()}/cgroup") or "")
    left = []
    if memory is not None and memory < MIN_BYTES:
        left.append(f"{max(0, memory) >> 20} MiB of memory")
    if tasks is not None and tasks < MIN_TASKS:
        left.append(f"{max(0, tasks)} tasks")
    return f"this container has {' and '.join(left)} left" if left else None
