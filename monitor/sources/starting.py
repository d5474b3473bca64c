"""What a launched training is importing, before it has shown itself: a file that its processes append to."""

from __future__ import annotations

from pathlib import Path

from trainhooks import rundir
from trainhooks.auto.imports import MAX_STARTING, STARTING
from trainhooks.clocks import NANOSECOND
from trainhooks.events import MAX_NAME, clean

Open = tuple[tuple[str, float], ...]  # outermost first: what, and since when on the monotonic clock


def starting(run: Path) -> Open:
    """What is open now in the living process that has been at it the longest. Only for runs of this machine."""
    try:
        with open(run / STARTING, "rb", opener=rundir.at_once) as source:
            told = source.read(2 * MAX_STARTING)
    except OSError:
        return ()
    living = [stack for pid, stack in stacks(told).items() if stack and rundir.process_alive(pid, None, None)]
    longest = min(living, key=lambda stack: stack[0][1], default=[])
    return tuple(longest)


def stacks(told: bytes) -> dict[int, list[tuple[str, float]]]:
    """The open imports of each process. Pure."""
    found: dict[int, list[tuple[str, float]]] = {}
    for line in told.split(b"\n")[:-1]:
        pid, _, rest = line.partition(b" ")
        at, _, name = rest.partition(b" ")
        if not (pid.isdigit() and at.isdigit()) or len(line) > 2 * MAX_NAME:
            continue
        stack = found.setdefault(int(pid), [])
        if name:
            stack.append((clean(name.decode("utf-8", "replace"), MAX_NAME), int(at) / NANOSECOND))
        elif stack:
            stack.pop()
    return found
