"""Remove old runs, so that the state directory stays bounded. Live and pinned runs always stay.

This happens when a run starts, beyond the limits below, and only to runs that were not modified for a day.

    [retention]
    runs = 400          # number of runs to keep
    gib = 20            # their total size
    run_gib = 4         # the size of a run that is live: older output and steps are freed; default: by the free space
    automatic = true    # false: only `trainmon prune` removes anything
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monitor import settings
from monitor.errors import UserError
from monitor.runs import catalogue
from trainhooks.protocol import rundir

# A year of daily runs, or a few weeks of large ones; journals are about 100 bytes a step.
KEEP_RUNS = 400
KEEP_BYTES = 20 * 2**30
MIN_RUN_BYTES = 2**26  # a live run keeps some ten thousand steps and a while of output
REMOVED_PREFIX = ".removed-"
PIN_NAME = "pinned"  # a file of this name in a run's directory keeps it forever
MIN_AGE = 24 * 3600.0  # seconds since the last write to a run's files before it may be removed automatically


@dataclass(frozen=True, slots=True)
class Stored:
    """A run on the disk."""

    path: Path
    started: float  # Unix time
    size: int  # bytes
    kept: bool  # live, pinned or a symbolic link: never removed
    touched: float = 0.0  # Unix time at which one of its files was last written


@dataclass(frozen=True, slots=True)
class Limits:
    """Which runs may stay, and how large one may grow."""

    runs: int = KEEP_RUNS
    size: int = KEEP_BYTES
    automatic: bool = True
    run: int | None = None  # bytes of a live run; None: by the free space


def limits() -> Limits:
    """Return the user's limits, or the defaults.

    Raises:
        UserError: the configuration of retention is invalid.
    """
    if settings.is_ignored():  # the defaults would remove runs that the user may want to keep
        raise UserError("the configuration is invalid")
    source, given = settings.path(), settings.table("retention")
    number, gib = given.get("runs", KEEP_RUNS), given.get("gib", KEEP_BYTES / 2**30)
    automatic = given.get("automatic", True)
    if type(number) is not int or number < 0:
        raise UserError(f"{source}: retention.runs must be a whole number, 0 or more")
    if type(gib) not in (int, float) or not 0 <= gib < 2**30:
        raise UserError(f"{source}: retention.gib must be a size in GiB, 0 or more")
    if not isinstance(automatic, bool):
        raise UserError(f"{source}: retention.automatic must be true or false")
    run_gib = given.get("run_gib")
    if run_gib is not None and (type(run_gib) not in (int, float) or not MIN_RUN_BYTES <= run_gib * 2**30 < 2**60):
        raise UserError(f"{source}: retention.run_gib must be a size in GiB, {MIN_RUN_BYTES / 2**30:g} or more")
    return Limits(number, int(gib * 2**30), automatic, None if run_gib is None else int(run_gib * 2**30))


def surplus(stored: list[Stored], keep_runs: int = KEEP_RUNS, keep_bytes: int = KEEP_BYTES) -> list[Stored]:
    """Return the runs to remove, oldest first, so that the rest is within number and size. Pure."""
    count, size = len(stored), sum(run.size for run in stored)
    out = []
    for run in sorted((run for run in stored if not run.kept), key=lambda run: run.started):
        if count <= keep_runs and size <= keep_bytes:
            break
        out.append(run)
        count -= 1
        size -= run.size
    return out


def stored() -> list[Stored]:
    """Return every run in this user's state directory.

    Raises:
        UserError: the runs' directory is a link or belongs to another user, so nothing there may be removed.
    """
    runs = rundir.runs_dir()
    if os.path.lexists(runs):
        try:
            rundir.private_directory(runs)
        except OSError as error:
            raise UserError(f"{error}; nothing was removed") from None
    rows = []
    for path in catalogue.paths():
        size, touched = _files(path)
        rows.append(Stored(path, catalogue.started_at(path), size, _is_kept(path), touched))
    return rows


def _is_kept(run: Path) -> bool:
    """Return whether a run stays regardless of the limits. A link stays: its target is not ours to remove."""
    live = catalogue.state(run)[0] == "running" or rundir.lock_held(rundir.recorder_lock(run))
    return live or (run / PIN_NAME).exists() or run.is_symlink()


def prune(over: Callable[[], bool]) -> None:
    """Remove runs beyond the limits that are older than a day, until `over` returns true.

    Raises:
        UserError: the configuration is invalid; nothing is removed.
    """
    configured = limits()
    if not configured.automatic:
        return
    removable = surplus(stored(), configured.runs, configured.size)
    sweep()
    newest_removed = time.time() - MIN_AGE
    sweep_sockets(newest_removed)
    for run in removable:
        if over():
            return
        if run.touched < newest_removed:
            remove(run)


def remove(run: Stored) -> bool:
    """Remove a run's directory. Return False where it is kept or could not be removed completely."""
    if _is_kept(run.path):
        return False
    # Renamed first, so that no reader sees a partial run: names that begin with a dot are not listed.
    hidden = run.path.with_name(f"{REMOVED_PREFIX}{run.path.name}")
    try:
        os.rename(run.path, hidden)
    except OSError:
        return False
    sweep()
    return not os.path.lexists(hidden)


def sweep() -> None:
    """Delete the renamed directories of removed runs, also those of an interrupted removal."""
    for path in rundir.runs_dir().glob(f"{REMOVED_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def sweep_sockets(newest_removed: float) -> None:
    """Delete the sockets without a listener: a killed process leaves its socket behind.

    Args:
        newest_removed: Unix time; sockets made later stay.
    """
    with contextlib.suppress(OSError):
        for pattern, kind in (("*.sock", socket.SOCK_STREAM), ("*.inbox", socket.SOCK_DGRAM)):
            for path in rundir.socket_dir().glob(pattern):
                if path.lstat().st_mtime < newest_removed and _is_dead(path, kind):
                    path.unlink(missing_ok=True)


def _is_dead(path: Path, kind: socket.SocketKind) -> bool:
    """Return whether a connection is refused: no process holds the other end."""
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:  # busy or removed
            return False
    return False


def _files(path: Path) -> tuple[int, float]:
    """Return the total size of a run's files in bytes, and the Unix time of the newest write."""
    total, newest = 0, 0.0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                total += min(status.st_size, status.st_blocks * 512)  # less where its older part was freed
                newest = max(newest, status.st_mtime)
    except OSError:
        return total, time.time()  # its age is unknown, so treat it as new
    return total, newest
