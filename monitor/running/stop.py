"""Stopping a training: politely, then firmly, then by force, saying each as it happens."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from monitor.runs import catalogue
from trainhooks import rundir

STEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
WAITS = (30.0, 30.0, 10.0)  # seconds that each of them is given; a checkpoint on the way out takes a while
LOOK_SECONDS = 0.1


def stop_training(run: Path, say: Callable[[str], None], waits: tuple[float, float, float] = WAITS) -> bool:
    """Stop the training of a run.

    Args:
        say: is told, line by line, what happens.
        waits: seconds after each of SIGINT, SIGTERM, SIGKILL.

    Returns:
        whether it has ended.
    """
    began = time.monotonic()
    if not rundir.run_alive(run):
        lives = catalogue.lives(run)
        say(f"{run.name} runs on another machine: stop it there" if lives else f"{run.name} is not running")
        return not lives
    if not all(_vouched_for(run, process.pid) for process in catalogue.processes(run)):
        say(f"{run.name} is not stopped: its files belong to another user, and its process does not")
        return False
    for number, wait in zip(STEPS, waits, strict=True):
        try:
            reached = [process for process in catalogue.processes(run) if _send(run, process, number)]
        except PermissionError:
            say(f"{run.name} runs as another user: stop it as that user")
            return False
        if reached:
            pids = ", ".join(str(process.pid) for process in reached)
            say(f"sent {number.name} to {run.name} (pid {pids}); waiting up to {wait:g} s")
        if _ended_within(run, wait):
            say(f"{run.name} has ended after {time.monotonic() - began:.1f} s")
            return True
    say(f"{run.name} has not ended after {time.monotonic() - began:.1f} s, not even by SIGKILL (stuck in the kernel?)")
    return False


def _send(run: Path, process: catalogue.Process, number: signal.Signals) -> bool:
    """Signal exactly this process, with its group if it leads one."""
    if not process.alive() or not _vouched_for(run, process.pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        return True
    return False


def _vouched_for(run: Path, pid: int) -> bool:
    """Whether the run's files may say that this process is its training: they are ours, or the process's owner's.

    So nobody's run directory, nor a link to one or a file in one, can have somebody else's processes stopped, not even
    by root.
    """
    try:
        told = [path for path in (str(run / rundir.IDENTITY), *rundir.rank_locks(run)) if os.path.lexists(path)]
        owners = {os.lstat(path).st_uid for path in [str(run), *told]}
        return owners == {os.getuid()} or owners == {psutil.Process(pid).uids().real}
    except (OSError, psutil.Error):
        return False


def _ended_within(run: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while rundir.run_alive(run):
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_SECONDS)
    return True
