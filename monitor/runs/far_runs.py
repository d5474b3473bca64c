"""The runs of other hosts, as entries of the list: made from the ends of their journals, which are fetched for that."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from monitor.errors import UserError
from monitor.remote.copies import Far, copies_dir, write_far
from monitor.remote.copy_writer import BadFrame, CopyWriter
from monitor.remote.line import LineCut, Target, open_line
from monitor.runs import catalogue
from monitor.runs.catalogue import RunEntry
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_NAME, clean

LIST_SECONDS = 60.0  # for a host to tell its runs
MAX_RUNS = 100  # of a host
MAX_LINES_AT_ONCE = 16


class Listed(NamedTuple):
    """The runs of a host, newest first; none with an error where it cannot be reached."""

    target: Target
    entries: list[RunEntry]
    error: str | None = None


def listed(targets: Iterable[Target]) -> list[Listed]:
    """Return the runs of some hosts, asked at once. The id of a run is HOST:RUN, its path that of its copy here."""
    hosts = list(targets)
    with ThreadPoolExecutor(min(MAX_LINES_AT_ONCE, max(1, len(hosts)))) as pool:
        return list(pool.map(lambda host: _listed(host, asks=len(hosts) == 1), hosts))


def _listed(target: Target, asks: bool) -> Listed:
    try:
        with tempfile.TemporaryDirectory(prefix="trainmon-") as place:
            return Listed(target, _entries(target, Path(place), asks))
    except (LineCut, BadFrame, OSError, UserError) as error:
        return Listed(target, [], str(error))


def _entries(target: Target, place: Path, asks: bool) -> list[RunEntry]:
    line = open_line(target, asks)
    writers: dict[str, CopyWriter] = {}
    try:
        line.send({"do": "peek"})
        until = time.monotonic() + LIST_SECONDS
        while time.monotonic() < until:
            for frame in line.frames(1.0):
                if frame.kind == "even":
                    return [_entry(target, writer.path) for writer in writers.values()]
                if frame.kind not in ("run", "bytes", "whole"):
                    continue
                run = frame.header.get("run")
                if not isinstance(run, str) or rundir.slug(run, MAX_NAME) != run or len(writers) > MAX_RUNS:
                    raise BadFrame("a run of a name that no run has")
                if frame.kind == "run":
                    (place / run).mkdir(mode=0o700, exist_ok=True)
                    writers[run] = CopyWriter(place / run)
                    alive, ranks = frame.header.get("alive") is True, frame.header.get("ranks") is True
                    write_far(place / run, Far(target.host, run, alive, ranks, time.time()))
                elif run in writers:
                    writers[run].take(frame)
        raise LineCut("it does not tell its runs")
    finally:
        for writer in writers.values():
            writer.close()
        line.close()


def _entry(target: Target, place: Path) -> RunEntry:
    found = catalogue.entry(place)
    copy = copies_dir() / rundir.slug(target.host, 80) / rundir.slug(found.id, 120)
    return replace(found, id=clean(f"{target.host}:{found.id}", 2 * MAX_NAME), path=copy)
