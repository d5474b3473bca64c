"""`trainmon attach --pid`: say what will be read of a foreign process, ask, and make its run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.commands.showing import agreed
from monitor.errors import UserError, say
from monitor.units import age, plural, size
from trainhooks.protocol.limits import clean

if TYPE_CHECKING:
    from monitor.running.foreign import Foreign, Log


def run_of(pid: int, log: Path | None, yes: bool) -> Path | None:
    """Return the run of a process: the one that records it, else a new one; None where the user does not want it.

    Raises:
        UserError: it cannot be attached to, or there is no terminal to ask on.
    """
    from monitor import settings
    from monitor.running import attaching, foreign

    process = foreign.looked_at(pid)
    if (known := foreign.recording_run(pid)) is not None:
        say(f"process {pid} is recorded already: {known.name}")
        return known
    if log is not None:
        process = replace(process, logs=[_given(log)])
    if not yes and not agreed(_plan(process), "Attach?", "to attach"):
        say("nothing was done")
        return None
    run = attaching.attach_to(process, settings.patterns())
    say(f"attached to process {pid} as {run.name}")
    return run


def unwatched_lines(living: Iterable[Path]) -> list[str]:
    """Return lines on this user's trainings on this machine that are in no run: how to watch each, and its command.

    Args:
        living: the runs whose training is alive.
    """
    from monitor.running.foreign import unwatched

    rows = [f"  trainmon attach --pid {pid}   {command}" for pid, command in unwatched(living)]
    return ["not watched, with torch or a GPU:", *rows] if rows else []


def _given(log: Path) -> Log:
    from monitor.running.foreign import Log
    from monitor.running.log_import import open_log

    open_log(log).close()
    if not log.is_file():
        raise UserError(f"{log} is not a regular file")
    return Log(str(log.absolute()), clean(str(log)), True)


def _plan(process: Foreign) -> list[str]:
    """Return what the process is, and what will be read of it, as lines."""
    from monitor.running.foreign import shown

    parts = [f"for {age(time.monotonic() - process.started)}", plural(process.threads, "thread", "threads")]
    if process.children:
        parts.append(f"{process.children} more {'process' if process.children == 1 else 'processes'} below it")
    lines = [f"process {process.pid}: {shown(process.command)} ({', '.join(parts)})"]
    lines.append("read each second to its end: /proc (CPU, memory, I/O, threads, processes below it), the GPU driver")
    lines += [f"read as it grows: {clean(log.shown)} ({size(os.stat(log.source).st_size)} now)" for log in process.logs]
    if not process.logs:
        where = f"it prints to {process.elsewhere}" if process.elsewhere else "it prints nowhere"
        lines.append(f"steps and metrics stay unknown: {where}, which is no file; --log FILE names one")
    stacks = "py-spy, without stopping it" if shutil.which("py-spy") else "the kernel alone: py-spy is not installed"
    lines.append(f"only for `trainmon stack`: {stacks}")
    lines.append("nothing is changed in it, sent to it or loaded into it; how it ends stays unknown")
    return lines
