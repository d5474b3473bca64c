"""The copies of runs on other hosts: where they lie, and what the far side said last of the run's life and clock.

A copy is a run directory with a file `far.json` in it. No process of it can be seen or reached from here, so its
`run.json` names none, and whether it lives is what its host says.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.remote.far_side import state_of
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.limits import MAX_NAME, clean

COPIES = "copies"  # in the state directory
FAR = "far.json"
PARTS = "parts.json"  # in the directory of a job on several hosts: the copies that it is made of
LOCK = "copy.lock"  # held by who writes the copy
SILENT_SECONDS = 5.0  # without a word from a host that speaks each second
WALL_DOUBT = 1.0  # seconds: the wall clocks of hosts that share a disk are kept by NTP, as a rule much closer
LOOK_TIMES = 10.0  # as long as it took, a look at all parts is kept
KEPT_COPIES = 50
KEPT_DAYS = 30


@dataclass(frozen=True, slots=True)
class Far:
    """What is known of a copy's origin. Times are of this host's clocks."""

    host: str = ""  # as a person named it
    run: str = ""  # its id there
    alive: bool = False
    ranks: bool = False  # whether a process that reports lives
    heard: float = 0.0  # Unix time of the last word
    heard_monotonic: float = 0.0
    boot_id: str = ""  # of this host, for the clock above
    clock: float | None = None  # seconds to add to this host's monotonic clock to get the far one's
    uncertainty: float | None = None  # seconds by which that may be wrong
    error: str = ""  # why there is no line

    def silent_seconds(self) -> float | None:
        """Return for how long nothing came of a run that lived then; None where its host speaks, or it has ended."""
        seconds = max(0.0, time.time() - self.heard)
        return seconds if self.alive and seconds > SILENT_SECONDS else None

    def now(self) -> float | None:
        """Return the time on the far host's monotonic clock; while it is silent, that of its last word."""
        if self.clock is None or self.boot_id != process_identity.boot_id():
            return None
        now = time.monotonic()
        return (self.heard_monotonic if now - self.heard_monotonic > SILENT_SECONDS else now) + self.clock


def far_of(run: Path) -> Far | None:
    """Return what is known of the origin of a copy, or of a job's copies; None for a run of this host."""
    if not os.path.exists(run / FAR):
        parts = fars_of(run)
        return combined(parts) if parts else None
    known = rundir.read_json(run / FAR) or {}
    return Far(
        host=_text(known.get("host")),
        run=_text(known.get("run")),
        boot_id=_text(known.get("boot_id")),
        error=_text(known.get("error")),
        alive=known.get("alive") is True,
        ranks=known.get("ranks") is True,
        heard=_number(known.get("heard")) or 0.0,
        heard_monotonic=_number(known.get("heard_monotonic")) or 0.0,
        clock=_number(known.get("clock")),
        uncertainty=_number(known.get("uncertainty")),
    )


def parts_of(run: Path) -> list[Path]:
    """Return the copies that a run of several hosts is made of, that of rank 0 first; empty for another run."""
    if not os.path.exists(run / PARTS):
        return []
    known = (rundir.read_json(run / PARTS) or {}).get("parts")
    return [Path(part) for part in known if isinstance(part, str)] if isinstance(known, list) else []


def fars_of(run: Path) -> list[Far]:
    """Return what is known of each host of a run that is on others, or of many; empty for any other run."""
    found = _of_parts(run)
    alone = None if found or not os.path.exists(run / FAR) else far_of(run)
    return found if alone is None else [alone]


_looked: dict[Path, tuple[float, list[Path], list[Far]]] = {}  # at the parts of a job, and until when that will do


def _of_parts(run: Path) -> list[Far]:
    """Return what is known of each part of a job. A look at a thousand takes a second, so it is kept a while."""
    began = time.monotonic()
    parts = parts_of(run)
    until, known, found = _looked.get(run, (0.0, [], []))
    if began < until and known == parts:
        return found
    found = [far_of(part) or _here(part) for part in parts]
    took = time.monotonic() - began
    if found:
        _looked[run] = began + took + min(LOOK_TIMES * took, SILENT_SECONDS / 2), parts, found
    return found


def _here(part: Path) -> Far:
    """Return what is known of a part that lies here: of this host, or of another one that writes to the same disk."""
    known, state, own = rundir.read_json(part / rundir.IDENTITY) or {}, state_of(part), process_identity.boot_id() or ""
    wall, monotonic = _number(known.get("started")), _number(known.get("started_monotonic"))
    clock, doubt = (0.0, 0.0) if known.get("boot_id") in (None, "", own) else (None, None)
    if clock is None and wall is not None and monotonic is not None:
        clock, doubt = (monotonic - wall) - (time.monotonic() - time.time()), WALL_DOUBT
    return Far(
        host=_text(known.get("host")),
        run=part.name,
        alive=bool(state["alive"]),
        ranks=bool(state["ranks"]),
        heard=time.time(),
        heard_monotonic=time.monotonic(),
        boot_id=own,
        clock=clock,
        uncertainty=doubt,
    )


def combined(parts: list[Far]) -> Far:
    """Return what is known of a run of these parts: it lives where one does, and speaks where one does."""
    lead = parts[0]
    newest = max(parts, key=lambda part: part.heard)
    return replace(
        lead, alive=any(part.alive for part in parts), ranks=any(part.ranks for part in parts), heard=newest.heard
    )


def _text(value: Any) -> str:
    return clean(value, 2 * MAX_NAME) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def write_far(run: Path, far: Far) -> None:
    with contextlib.suppress(OSError):  # a full disk: the last word is an old one
        rundir.write_json(run / FAR, asdict(far))


def copies_dir() -> Path:
    """Return the directory of the copies, made where it is missing, and private.

    Raises:
        UnsafeDirectory: it is a link, another user's, or open to others.
        OSError: it cannot be made.
    """
    return rundir.private_directory(rundir.ready_runs_dir().parent / COPIES)


def copy_place(host: str, run: str) -> Path:
    """Return the directory of a copy, which may not be there."""
    return rundir.state_dir() / COPIES / rundir.slug(host, 80) / rundir.slug(run, 120)


def copy_path(host: str, run: str) -> Path:
    """Return the directory of a copy, made where it is missing.

    Raises:
        OSError: it cannot be made.
    """
    path = copy_place(host, run)
    copies_dir()
    rundir.private_directory(path.parent)
    return rundir.private_directory(path)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Say of an error of the state directory what to do.

    Raises:
        UserError: there is no room for a copy.
    """
    try:
        yield
    except rundir.UnsafeDirectory:  # it says so itself
        raise
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise UserError(
            f"no copy can be kept: {what}; set {rundir.STATE_VARIABLE} to a directory that you can write to"
        ) from None


def known_copies() -> list[Path]:
    """Return all copies, the one written last first."""
    try:
        found = [copy for host in copies_dir().iterdir() if host.is_dir() for copy in host.iterdir()]
        return sorted((copy for copy in found if (copy / FAR).is_file()), key=_written, reverse=True)
    except OSError:
        return []


def remove_old() -> None:
    """Remove copies beyond a number, and those that were not written for a month. None that is being written.

    A job goes with the first of its parts.
    """
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for place, copy in enumerate(known_copies()):
        if (place >= KEPT_COPIES or _written(copy) < oldest) and not rundir.lock_held(copy / LOCK):
            shutil.rmtree(copy, ignore_errors=True)
    for job in copies_dir().glob(f"*/*/{PARTS}"):
        if not all(part.is_dir() for part in parts_of(job.parent)):
            shutil.rmtree(job.parent, ignore_errors=True)


def _written(copy: Path) -> float:
    try:
        return (copy / FAR).stat().st_mtime
    except OSError:
        return 0.0
