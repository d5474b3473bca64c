"""What the processes of a launched training do before its first step: files of the run that they write."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path
from typing import Any

from monitor.start_looks import StartLook
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.limits import MAX_NAME, clean

OpenImports = tuple[tuple[str, float], ...]  # outermost first: name, and monotonic time of its start


def starting_imports(run: Path) -> OpenImports:
    """Return the imports open in the live process that started first. Only for runs of this machine."""
    try:
        with open(run / rundir.STARTING, "rb", opener=rundir.open_at_once) as source:
            lines = source.read(2 * rundir.MAX_STARTING)
    except OSError:
        return ()
    living = [
        stack for pid, stack in all_imports(lines).items() if stack and process_identity.process_alive(pid, None, None)
    ]
    longest = min(living, key=lambda stack: stack[0][1], default=[])
    return tuple(longest)


def all_imports(lines: bytes) -> dict[int, list[tuple[str, float]]]:
    """Return the open imports of every process. Pure."""
    open_imports: dict[int, list[tuple[str, float]]] = {}
    for line in lines.split(b"\n")[:-1]:
        pid, _, rest = line.partition(b" ")
        at, _, name = rest.partition(b" ")
        if not (pid.isdigit() and at.isdigit()) or len(line) > 2 * MAX_NAME:
            continue
        stack = open_imports.setdefault(int(pid), [])
        if name:
            stack.append((clean(name.decode("utf-8", "replace"), MAX_NAME), int(at) / 1e9))
        elif stack:
            stack.pop()
    return open_imports


MAX_LOOKS = 256  # processes that are read
MAX_RANK = 10**7


def starting_looks(run: Path) -> tuple[StartLook, ...]:
    """Return what each process without a step was seen at last, also of those that are gone."""
    try:
        names = sorted(name for name in os.listdir(run) if name.startswith(rundir.LOOK) and name.endswith(".json"))
    except OSError:
        return ()
    tables = [rundir.read_json(run / name) for name in names[:MAX_LOOKS]]
    here = socket.gethostname()
    return tuple(look for table in tables if table is not None and (look := look_of(table, here)) is not None)


def look_of(table: dict[str, Any], here: str) -> StartLook | None:
    """Return a process's look as far as its file makes sense; None where it does not.

    Args:
        here: the name of this machine, whose processes can be asked for.
    """
    pid, since = table.get("pid"), table.get("since")
    if type(pid) is not int or pid <= 0 or not isinstance(since, int | float) or not math.isfinite(since):
        return None
    what, of, place = (clean(text, MAX_NAME) if isinstance(text := table.get(name), str) else "" for name in _TEXTS)
    rank, world = (_count_or_none(table.get(name)) for name in ("rank", "world_size"))
    alive = table.get("host") != here or process_identity.process_alive(pid, None, None)
    return StartLook(pid, what, of, float(since), place, rank, world, alive)


_TEXTS = ("what", "of", "place")


def _count_or_none(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < MAX_RANK else None
