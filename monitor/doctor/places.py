"""Where runs and sockets lie: whether files can be written there, locks hold, and there is room."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from monitor.doctor.check import Check
from monitor.running import own_process
from monitor.units import size
from trainhooks import rundir
from trainhooks.journal import Publisher

TOO_LITTLE = 50 << 20  # bytes: a few hours of one GPU's readings
LITTLE = 1 << 30


def run_directory() -> list[Check]:
    """Whether a run could be recorded."""
    runs = rundir.runs_dir()
    part = "run directory"
    try:
        runs = rundir.ready_runs_dir()
        place = Path(tempfile.mkdtemp(dir=runs, prefix=".doctor-"))
    except rundir.UnsafeDirectory as error:
        advice = f"Or set {rundir.STATE_VARIABLE} to a directory of your own."
        return [Check(part, "broken", str(error), advice, True)]
    except OSError as error:
        advice = f"Set {rundir.STATE_VARIABLE} to a directory that you can write to."
        return [Check(part, "broken", f"{runs}: {error.strerror}", advice, True)]
    try:
        return [_room(runs), _locks(place)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _room(runs: Path) -> Check:
    part = "run directory"
    try:
        free = shutil.disk_usage(runs).free
    except OSError as error:
        return Check(part, "limited", f"{runs}: writable; free space unknown: {error.strerror}", None, True)
    text = f"{runs}: writable, {size(free)} free"
    advice = f"Free some space, `trainmon prune`, or set {rundir.STATE_VARIABLE} to another disk."
    if free < TOO_LITTLE:
        return Check(part, "broken", text, advice, True, {"free": free})
    if free < LITTLE:
        return Check(part, "limited", text, advice, True, {"free": free})
    return Check(part, "works", text, None, True, {"free": free})


def _locks(place: Path) -> Check:
    """Whether another process sees a lock that this one holds: not so on some network file systems."""
    advice = (
        f"Set {rundir.STATE_VARIABLE} to a local disk: without locks, who lives is told by pid on this machine only."
    )
    path = place / "test.lock"
    try:
        lock = rundir.Lock.acquire(path)
    except OSError as error:
        return Check("locks", "missing", f"the file system refuses them: {error.strerror}", advice)
    if lock is None:
        return Check("locks", "broken", "a new lock file is locked already", advice)
    try:
        done = subprocess.run(own_process.command("monitor.doctor.places", str(path)), capture_output=True, timeout=30)
        held = done.stdout.strip() == b"True"
    except (OSError, subprocess.TimeoutExpired):
        held = False
    finally:
        lock.release()
    if held:
        return Check("locks", "works", "another process sees that a run is alive")
    return Check("locks", "missing", "another process does not see a lock that this one holds", advice)


def main(path: str) -> None:
    """In a process of its own: tell whether it sees that a lock is held."""
    print(rundir.lock_held(Path(path)))


def sockets() -> Check:
    """Whether live screens can be called by socket."""
    part = "sockets"
    try:
        directory = rundir.socket_dir()
    except rundir.UnsafeDirectory as error:
        return Check(part, "broken", "screens will follow the journals", f"{error}.")
    except OSError as error:
        text = f"no directory for them ({error.strerror}): screens will follow the journals"
        return Check(part, "missing", text, "Make /tmp writable.")
    publisher = Publisher.open(f"doctor-{os.getpid()}")
    if publisher is None:
        text = f"{directory}: cannot be bound there; screens will follow the journals"
        return Check(part, "missing", text, "Is pyzmq installed, and does /tmp allow sockets?")
    with contextlib.suppress(OSError):
        publisher.close()
    return Check(part, "works", f"{directory}, private to you")
