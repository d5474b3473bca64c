"""Figures kept of finished runs, and the run to compare with: the last comparable one of the same command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec

from monitor.model.comparison.changes import same_kind_of_machine, same_program
from monitor.model.comparison.compare import Side
from monitor.model.comparison.likeness import differences
from monitor.model.report import Report
from monitor.runs import catalogue
from monitor.runs.caches import type_checksum, write_cache
from monitor.runs.run_files import identity
from monitor.runs.state_cache import MAX_CACHE_BYTES
from trainhooks.protocol import rundir

FIGURES_CACHE = "figures.cache"
MIN_BASELINE_STEPS = 30  # steps of a run that others can be compared with
MAX_CANDIDATES = 5  # newest runs considered: code and machine of older ones are likely to differ
MAX_READ_BYTES = 64 << 20  # of journals read where no cache exists: some seconds


class _KeptFigures(msgspec.Struct):
    shape: str
    bytes: int  # of the journals that it was made of
    side: Side


_figures_decoder = msgspec.msgpack.Decoder(_KeptFigures)


def keep_figures(run: Path, side: Side) -> None:
    """Cache the figures of a run that has ended."""
    report = side.report
    if report.outcome.state == "running" or not _steps(report):
        return
    # Only what a comparison reads: none of the lists that grow with a run.
    slim = replace(report, slow_steps=[], findings=[], alerts=[])
    kept = _KeptFigures(type_checksum(Side), _journal_bytes(run), Side(slim, side.step_seconds))
    write_cache(run / FIGURES_CACHE, msgspec.msgpack.encode(kept))


def recall_figures(run: Path) -> Side | None:
    """Return the cached figures, if they match the journals."""
    try:
        kept = _figures_decoder.decode(rundir.read_regular(run / FIGURES_CACHE, MAX_CACHE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return kept.side if kept.shape == type_checksum(Side) and kept.bytes == _journal_bytes(run) else None


def baseline_run(run: Path, report: Report, read: Callable[[Path], Side]) -> Side | None:
    """Return the last comparable run of the same command that ended before this one began; None where there is none.

    Args:
        run: the directory of the run to compare.
        report: its report.
        read: reads a run from its journals, where its figures are not cached.
    """
    own = identity(run)
    for candidate in _candidates(run)[:MAX_CANDIDATES]:
        if catalogue.state(candidate)[0] == "running":
            continue
        side = recall_figures(candidate)
        if side is None and _journal_bytes(candidate) <= MAX_READ_BYTES:
            side = read(candidate)
            keep_figures(candidate, side)
        if side is None or _steps(side.report) < MIN_BASELINE_STEPS or differences(side.report, report):
            continue
        if same_kind_of_machine(side.report, report):
            began, ended = own.get("started"), _ended(side.report)
            if began and ended and ended <= began:
                return side
    return None


def typical_startup(run: Path) -> float | None:
    """Return the median start-up of this command's last runs in seconds, from their cached figures; None if unknown."""
    sides = [recall_figures(path) for path in _candidates(run)[:MAX_CANDIDATES]]
    known = [side.report.wall.startup for side in sides if side is not None and _steps(side.report)]
    seconds = [startup for startup in known if startup]
    return median(seconds) if seconds else None


def _candidates(run: Path) -> list[Path]:
    """Return earlier runs of the same command, newest first, by their identity alone."""
    own = identity(run)
    started = own.get("started")
    if not started or not own.get("command"):
        return []
    earlier = []
    for path in run.parent.iterdir() if run.parent == rundir.runs_dir() else ():
        known = identity(path)
        if path != run and known.get("started", started) < started and same_program(known, own):
            earlier.append((known["started"], path))
    return [path for _, path in sorted(earlier, reverse=True)]


def _ended(report: Report) -> float | None:
    if report.run.started is None or report.wall.total is None:
        return None
    return report.run.started + report.wall.total


def _steps(report: Report) -> int:
    return report.progress.steps_ok + report.progress.steps_skipped


def _journal_bytes(run: Path) -> int:
    total = 0
    for journal in rundir.journals(run):
        with contextlib.suppress(OSError):
            total += journal.stat().st_size
    return total
