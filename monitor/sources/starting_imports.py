"""What a launched training imports before its first event: a file that its processes append to."""

from __future__ import annotations

from pathlib import Path

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
