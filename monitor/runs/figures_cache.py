"""Figures kept of finished runs, and the run to compare with: the last comparable one of the same command."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from monitor.model.comparison.changes import find_changes, same_kind_of_machine, same_program
from monitor.model.comparison.compare import Side
from monitor.model.comparison.likeness import differences
from monitor.model.comparison.loop_pace import LoopTime
from monitor.model.report import Report
from monitor.runs import catalogue
from monitor.runs.caches import journal_bytes, type_checksum, write_cache
from monitor.runs.run_files import identity
from monitor.runs.state_cache import MAX_CACHE_BYTES
from trainhooks.protocol import rundir

FIGURES_CACHE = "figures.cache"
MIN_BASELINE_STEPS = 30  # steps of a run that others can be compared with
MAX_CANDIDATES = 5  # newest runs considered: code and machine of older ones are likely to differ
MAX_READ_BYTES = 64 << 20  # of journals read where no cache exists: some seconds

Alike = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]  # of two identities


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
    kept = _KeptFigures(type_checksum(Side), journal_bytes(run), Side(slim, side.loop))
    write_cache(run / FIGURES_CACHE, msgspec.msgpack.encode(kept))


def recall_figures(run: Path) -> Side | None:
    """Return the cached figures, if they match the journals."""
    try:
        kept = _figures_decoder.decode(rundir.read_regular(run / FIGURES_CACHE, MAX_CACHE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return kept.side if kept.shape == type_checksum(Side) and kept.bytes == journal_bytes(run) else None


def baseline_run(run: Path, report: Report, read: Callable[[Path], Side]) -> Side | None:
    """Return the last comparable run of the same command that ended before this one began; None where there is none.

    With it come those of its repeats whose figures are cached.

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
        if side is None and journal_bytes(candidate) <= MAX_READ_BYTES:
            side = read(candidate)
            keep_figures(candidate, side)
        if side is None or _steps(side.report) < MIN_BASELINE_STEPS or differences(side.report, report):
            continue
        if same_kind_of_machine(side.report, report):
            began, ended = own.get("started"), _ended(side.report)
            if began and ended and ended <= began:
                return replace(side, repeats=_repeats(candidate, side.report, began, recall_figures))
    return None


def with_repeats(one: Side, two: Side, read: Callable[[Path], Side]) -> tuple[Side, Side]:
    """Return two runs with the repeats of their commands, which tell what starts of one program differ by.

    Where nothing is known to have changed between the two, only what began before the later one counts: what came after
    it may have changed as it did.
    """

    def figures(path: Path) -> Side | None:
        return recall_figures(path) or (read(path) if journal_bytes(path) <= MAX_READ_BYTES else None)

    sides, paths = [one, two], [rundir.runs_dir() / (side.report.run.id or "") for side in (one, two)]
    began = [identity(path).get("started", 0.0) for path in paths]
    if find_changes(one.report, two.report):
        for at, side in enumerate((one, two)):
            sides[at] = replace(side, repeats=_repeats(paths[at], side.report, math.inf, figures))
    else:
        at = began.index(min(began))
        sides[at] = replace(sides[at], repeats=_repeats(paths[at], sides[at].report, max(began), figures))
    return sides[0], sides[1]


def _repeats(run: Path, report: Report, until: float, figures: Callable[[Path], Side | None]) -> tuple[LoopTime, ...]:
    """Return the newest runs that began before `until` and have ended, with nothing known to differ from this one."""
    ended = (path for path in _candidates(run, _same_command, until) if catalogue.state(path)[0] != "running")
    sides = [figures(path) for path in islice(ended, MAX_CANDIDATES)]
    known = [side for side in sides if side is not None and _steps(side.report) >= MIN_BASELINE_STEPS]
    return tuple(side.loop for side in known if not find_changes(report, side.report))


def _same_command(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in ("command", "cwd", "imported"))


def typical_startup(run: Path) -> float | None:
    """Return the median start-up of this command's last runs in seconds, from their cached figures; None if unknown."""
    sides = [recall_figures(path) for path in _candidates(run)[:MAX_CANDIDATES]]
    known = [side.report.wall.startup for side in sides if side is not None and _steps(side.report)]
    seconds = [startup for startup in known if startup]
    return median(seconds) if seconds else None


def _candidates(run: Path, alike: Alike = same_program, until: float | None = None) -> list[Path]:
    """Return other runs of the same command that began before `until`, newest first, by their identity alone."""
    own = identity(run)
    started = own.get("started") if until is None else until
    if not started or not own.get("command"):
        return []
    earlier = []
    for path in run.parent.iterdir() if run.parent == rundir.runs_dir() else ():
        known = identity(path)
        if path != run and known.get("started", started) < started and alike(known, own):
            earlier.append((known["started"], path))
    return [path for _, path in sorted(earlier, reverse=True)]


def _ended(report: Report) -> float | None:
    if report.run.started is None or report.wall.total is None:
        return None
    return report.run.started + report.wall.total


def _steps(report: Report) -> int:
    return report.progress.steps_ok + report.progress.steps_skipped
