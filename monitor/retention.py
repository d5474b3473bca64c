"""Old runs are removed, so that the state directory does not grow for ever. Never a live one, never a pinned one."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from monitor import recorder, runs
from trainhooks import rundir

# A year of daily runs, or a few weeks of large ones; journals are about 300 bytes a step.
KEEP_RUNS = 400
KEEP_BYTES = 20 * 2**30
GONE = ".removed-"
PIN = "pinned"  # a file of this name in a run's directory keeps it for ever


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as it lies on the disk."""

    path: Path
    started: float  # Unix time
    size: int  # bytes
    kept: bool  # live or pinned


def surplus(stored: list[Stored], keep_runs: int = KEEP_RUNS, keep_bytes: int = KEEP_BYTES) -> list[Stored]:
    """The runs to remove, oldest first: those that fit in neither number nor size beside the newer ones. Pure."""
    out = []
    count = size = 0
    for each in sorted(stored, key=lambda each: (each.kept, each.started), reverse=True):
        if each.kept or (count < keep_runs and size + each.size <= keep_bytes):
            count += 1
            size += each.size
        else:
            out.append(each)
    return out[::-1]


def stored() -> list[Stored]:
    """Every run of this user's state directory."""
    found = []
    for path in runs.paths():
        live = runs.state(path)[0] == "running" or rundir.lock_held(recorder.lock_path(path))
        found.append(Stored(path, runs.started_at(path), _size(path), live or (path / PIN).exists()))
    return found


def remove(run: Stored) -> bool:
    """Remove a run's directory; False where that is not possible, or it has come to life."""
    if runs.state(run.path)[0] == "running" or (run.path / PIN).exists():
        return False
    # Renamed first, so that nobody meets half a run: names that begin with a dot are no runs.
    gone = run.path.with_name(f"{GONE}{run.path.name}")
    try:
        os.rename(run.path, gone)
    except OSError:
        return False
    sweep()
    return True


def sweep() -> None:
    """Delete what was removed, leftovers of a removal that was cut short among it."""
    for path in rundir.runs_dir().glob(f"{GONE}*"):
        shutil.rmtree(path, ignore_errors=True)


def _size(path: Path) -> int:
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass
    return total
