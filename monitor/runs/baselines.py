"""The run to measure by: the last comparable one of the same command, found among those that are kept.

Of a run that has ended, whoever reads it to its end leaves its figures beside its journals (`figures.cache`): so that
the next run of the command is compared in milliseconds. It is a cache: without it, the journals are read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec

from monitor.model.comparable import same_kind_of_machine, same_program
from monitor.model.compare import Side
from monitor.model.report import Report
from monitor.runs import caches, catalogue
from monitor.sources.identity import identity
from trainhooks import rundir

NAME = "figures.cache"
ENOUGH = 30  # steps of a run that others can be measured by
LOOKS = 5  # runs that are looked at, the newest first: what ran long ago is no measure of today
READABLE = 64 * 1024 * 1024  # bytes of journals that may be read for the want of a cache: some seconds


class _Kept(msgspec.Struct):
    shape: str
    bytes: int  # of the journals that it was made of
    side: Side


_decoder = msgspec.msgpack.Decoder(_Kept)


def keep(run: Path, side: Side) -> None:
    """Leave the figures of a run that has ended. Failing is no harm."""
    report = side.report
    if report.outcome.state == "running" or not _steps(report):
        return
    # What a comparison looks at: none of the lists that grow with a run.
    slim = replace(report, slow_steps=[], findings=[], alerts=[])
    kept = _Kept(caches.shape(Side), _size(run), Side(slim, side.step_seconds))
    caches.write(run / NAME, msgspec.msgpack.encode(kept, enc_hook=list))


def recall(run: Path) -> Side | None:
    """The figures that were left, if they are of the journals as they stand."""
    try:
        kept = _decoder.decode((run / NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return kept.side if kept.shape == caches.shape(Side) and kept.bytes == _size(run) else None


def before(run: Path, report: Report, read: Callable[[Path], Side]) -> Side | None:
    """The last comparable run of the same command that ended before this one began; None where there is none.

    Args:
        run: the directory of the run that is to be measured.
        report: what is known of it.
        read: reads a run from its journals, where its figures were not left.
    """
    own = identity(run)
    for candidate in _candidates(run)[:LOOKS]:
        if catalogue.state(candidate)[0] == "running":
            continue
        side = recall(candidate)
        if side is None and _size(candidate) <= READABLE:
            side = read(candidate)
            keep(candidate, side)
        if side is not None and _steps(side.report) >= ENOUGH and same_kind_of_machine(side.report, report):
            began, ended = own.get("started"), _ended(side.report)
            if began and ended and ended <= began:
                return side
    return None


def usual_startup(run: Path) -> float | None:
    """The seconds that the start-up of this command usually takes, from the figures that its last runs left."""
    sides = [recall(path) for path in _candidates(run)[:LOOKS]]
    known = [side.report.wall.startup for side in sides if side is not None and _steps(side.report)]
    told = [seconds for seconds in known if seconds]
    return median(told) if told else None


def _candidates(run: Path) -> list[Path]:
    """Runs of the same command that began before, the newest first, by their identity alone."""
    own = identity(run)
    started = own.get("started")
    if not started or not own.get("command"):
        return []
    found = []
    for path in run.parent.iterdir() if run.parent == rundir.runs_dir() else ():
        known = identity(path)
        if path != run and known.get("started", started) < started and same_program(known, own):
            found.append((known["started"], path))
    return [path for _, path in sorted(found, reverse=True)]


def _ended(report: Report) -> float | None:
    if report.run.started is None or report.wall.total is None:
        return None
    return report.run.started + report.wall.total


def _steps(report: Report) -> int:
    return report.progress.steps_ok + report.progress.steps_skipped


def _size(run: Path) -> int:
    total = 0
    for journal in rundir.journals(run):
        with contextlib.suppress(OSError):
            total += journal.stat().st_size
    return total
