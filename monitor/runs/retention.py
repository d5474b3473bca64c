"""Old runs are removed, so that the state directory does not grow for ever. Never a live one, never a pinned one.

It happens by itself when a run begins, beyond the limits below, and never to what anybody has touched within a day.

    [retention]
    runs = 400          # how many stay
    gib = 20            # how much they may take in all
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

from monitor.errors import UserError
from monitor.runs import catalogue
from monitor.settings import config
from trainhooks import rundir

# A year of daily runs, or a few weeks of large ones; journals are about 300 bytes a step.
KEEP_RUNS = 400
KEEP_BYTES = 20 * 2**30
GONE = ".removed-"
PIN = "pinned"  # a file of this name in a run's directory keeps it for ever
YOUNG = 24 * 3600.0  # seconds since a run's files were last written, in which nothing removes it unasked


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as it lies on the disk."""

    path: Path
    started: float  # Unix time
    size: int  # bytes
    kept: bool  # live or pinned, or no directory of its own
    touched: float = 0.0  # Unix time at which one of its files was last written


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay."""

    runs: int = KEEP_RUNS
    size: int = KEEP_BYTES
    automatic: bool = True


def limits() -> Limits:
    """The user's own limits, or the defaults.

    Raises:
        UserError: what the configuration says of them cannot be used.
    """
    source, given = config.path(), config.table("retention")
    number, gib = given.get("runs", KEEP_RUNS), given.get("gib", KEEP_BYTES / 2**30)
    automatic = given.get("automatic", True)
    if type(number) is not int or number < 0:
        raise UserError(f"{source}: retention.runs is a whole number of runs, 0 or more")
    if type(gib) not in (int, float) or not 0 <= gib < 2**30:
        raise UserError(f"{source}: retention.gib is a size in GiB, 0 or more")
    if not isinstance(automatic, bool):
        raise UserError(f"{source}: retention.automatic is true or false")
    return Limits(number, int(gib * 2**30), automatic)


def surplus(stored: list[Stored], keep_runs: int = KEEP_RUNS, keep_bytes: int = KEEP_BYTES) -> list[Stored]:
    """The runs to remove, oldest first, until what stays is within number and size. Pure."""
    count, size = len(stored), sum(each.size for each in stored)
    out = []
    for each in sorted((each for each in stored if not each.kept), key=lambda each: each.started):
        if count <= keep_runs and size <= keep_bytes:
            break
        out.append(each)
        count -= 1
        size -= each.size
    return out


def stored() -> list[Stored]:
    """Every run of this user's state directory.

    Raises:
        UserError: in the place of the runs is a link, or what belongs to another user: nothing there is ours to remove.
    """
    runs = rundir.runs_dir()
    if os.path.lexists(runs):
        try:
            rundir.private(runs)
        except OSError as error:
            raise UserError(f"{error}; nothing is removed") from None
    found = []
    for path in catalogue.paths():
        size, touched = _files(path)
        found.append(Stored(path, catalogue.started_at(path), size, _is_kept(path), touched))
    return found


def _is_kept(run: Path) -> bool:
    """Whether a run stays whatever the limits say. A link stays: what it leads to is not ours to remove."""
    live = catalogue.state(run)[0] == "running" or rundir.lock_held(rundir.recorder_lock(run))
    return live or (run / PIN).exists() or run.is_symlink()


def prune(over: Callable[[], bool]) -> None:
    """Remove what is beyond the limits and older than a day, as long as it is not `over`.

    Raises:
        UserError: the configuration cannot be used; nothing is removed then.
    """
    told = limits()
    if not told.automatic:
        return
    beyond = surplus(stored(), told.runs, told.size)
    sweep()
    young = time.time() - YOUNG
    sweep_sockets(young)
    for each in beyond:
        if over():
            return
        if each.touched < young:
            remove(each)


def remove(run: Stored) -> bool:
    """Remove a run's directory; False where not all of it could be removed, or it has come to life."""
    if _is_kept(run.path):
        return False
    # Renamed first, so that nobody meets half a run: names that begin with a dot are no runs.
    gone = run.path.with_name(f"{GONE}{run.path.name}")
    try:
        os.rename(run.path, gone)
    except OSError:
        return False
    sweep()
    return not os.path.lexists(gone)


def sweep() -> None:
    """Delete what was removed, leftovers of a removal that was cut short among it."""
    for path in rundir.runs_dir().glob(f"{GONE}*"):
        shutil.rmtree(path, ignore_errors=True)


def sweep_sockets(young: float) -> None:
    """Delete the sockets that nobody listens to any more: a killed process leaves its own behind.

    Args:
        young: Unix time; what was made later stays.
    """
    with contextlib.suppress(OSError):
        for path in rundir.socket_dir().glob("*.sock"):
            if path.lstat().st_mtime < young and _is_dead(path):
                path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    """Whether a connection is refused: the kernel says so at once where no process holds the other end."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:  # busy, or gone
            return False
    return False


def _files(path: Path) -> tuple[int, float]:
    """The bytes in a run's files, and when the newest of them was written."""
    total, newest = 0, 0.0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                total += found.st_size
                newest = max(newest, found.st_mtime)
    except OSError:
        return total, time.time()  # what cannot be looked at is not known to be old
    return total, newest
