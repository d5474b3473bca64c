"""The directories of runs and sockets: writable, with working locks, with free space."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from monitor.doctor.checks import Check
from monitor.running import command
from monitor.sources.sockets import Publisher, Refused
from monitor.units import size
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

MIN_RUN_SPACE = 50 << 20  # bytes: a few hours of one GPU's readings
LOW_RUN_SPACE = 1 << 30


def run_directory() -> list[Check]:
    """Check whether a run can be recorded."""
    runs = rundir.runs_dir()
    part = "run directory"
    try:
        runs = rundir.ready_runs_dir()
        place = Path(tempfile.mkdtemp(dir=runs, prefix=".doctor-"))
    except rundir.UnsafeDirectory as error:
        advice = f"Or set {rundir.STATE_VARIABLE} to a directory that you own."
        return [Check(part, "broken", str(error), advice, True)]
    except OSError as error:
        advice = f"Set {rundir.STATE_VARIABLE} to a writable directory."
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
    advice = f"Free some space (`trainmon prune`), or set {rundir.STATE_VARIABLE} to another disk."
    if free < MIN_RUN_SPACE:
        return Check(part, "broken", text, advice, True, {"free": free})
    if free < LOW_RUN_SPACE:
        return Check(part, "limited", text, advice, True, {"free": free})
    return Check(part, "works", text, None, True, {"free": free})


def _locks(place: Path) -> Check:
    """Check that another process sees a lock that this one holds; some network file systems fail that."""
    advice = f"Set {rundir.STATE_VARIABLE} to a local disk: without locks, only this machine knows which runs are live."
    path = place / "test.lock"
    try:
        lock = rundir.Lock.acquire(path)
    except OSError as error:
        return Check("locks", "missing", f"not supported by the file system: {error.strerror}", advice)
    if lock is None:
        return Check("locks", "broken", "a new lock file is already locked", advice)
    try:
        done = subprocess.run(
            command.module_command("monitor.doctor.directory_checks", str(path)), capture_output=True, timeout=30
        )
        held = done.stdout.strip() == b"True"
    except (OSError, subprocess.TimeoutExpired):
        held = False
    finally:
        lock.release()
    if held:
        return Check("locks", "works", "visible to other processes")
    return Check("locks", "missing", "not visible to other processes", advice)


def main(path: str) -> None:
    """Print whether this process sees a lock held. Started by `_locks` as a process of its own."""
    print(rundir.lock_held(Path(path)))


def sockets() -> Check:
    """Check whether live screens can be notified by socket."""
    part = "sockets"
    try:
        directory = rundir.socket_dir()
    except rundir.UnsafeDirectory as error:
        return Check(part, "broken", "not available; screens poll the journals", f"{error}.")
    except OSError as error:
        text = f"no directory for them ({error.strerror}); screens poll the journals"
        return Check(part, "missing", text, "Make /tmp writable.")
    try:
        Publisher(directory / f"doctor-{os.getpid()}.sock").close()
    except Refused as error:
        text = f"{clean(str(error), 200)}; screens poll the journals"
        return Check(part, "missing", text, "Check that pyzmq is installed, the limits, and that /tmp allows sockets.")
    return Check(part, "works", f"{directory}, private")
