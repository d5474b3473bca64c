"""The process that starts one run of `trainmon try`, and that stops it where whoever asked for it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from monitor.running import command, launch
from monitor.running.isolation import NAMESPACE
from monitor.running.stopping import stop_training
from trainhooks.protocol import rundir

LOOK_SECONDS = 0.2
WAITS = (10.0, 5.0, 5.0)  # seconds after SIGINT, SIGTERM and SIGKILL: what is saved at the end is thrown away


def main(*words: str) -> None:
    """Start the program, print the run's directory, and wait for its end."""
    parent = os.getppid()
    # A shell's background job ignores it, and its programs with it: each run would then wait for the next signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command.check_executable(words)
        # Traced steps are slower than others, and nobody asks such a run for a trace.
        training = launch.start(list(words), launch.Options(name="try", trace=False, control=False))
    except (command.CannotRun, command.CannotRecord) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    sys.stdout.write(f"{training.run}\n")
    sys.stdout.flush()
    while training.poll() is None:
        if os.getppid() != parent:
            stop_training(training.run, lambda line: None, WAITS)
            kill_left(training.run, rundir.state_dir().parent)
        time.sleep(LOOK_SECONDS)


def kill_left(run: Path | None, where: Path) -> None:
    """Kill what a run has left behind, whatever it did to live on.

    Args:
        where: the directory that holds the state directory and the mark of the run's namespace.
    """
    for pid in _left(run, where):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _left(run: Path | None, where: Path) -> list[int]:
    """Return the processes that bear the run's mark in their environment, or that live in its mount namespace."""
    mark = b"" if run is None else f"{rundir.RUN_VARIABLE}={run}".encode()
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = f"mnt:[{(where / NAMESPACE).read_text().strip()}]"
        (where / NAMESPACE).unlink()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/mnt") == namespace or (
                    mark and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                ):
                    found.append(int(name))
    return found
