"""The runs of other hosts, as entries of the list: made from the ends of their journals, which are fetched for that."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from monitor.errors import UserError
from monitor.remote.copies import Far, copy_place, write_far
from monitor.remote.copy_writer import BadFrame, CopyWriter
from monitor.remote.line import LineCut, Target, open_line
from monitor.runs import catalogue
from monitor.runs.catalogue import RunEntry
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_NAME, clean

LIST_SECONDS = 60.0  # for a host to tell its runs
EACH_SECONDS = 15.0  # between two rounds, for a list on the screen
MAX_RUNS = 100  # of a host
MAX_LINES_AT_ONCE = 16


class Listed(NamedTuple):
    """The runs of a host, newest first; none with an error where it cannot be reached."""

    target: Target
    entries: list[RunEntry]
    error: str | None = None


def listed(targets: Iterable[Target], asks: bool = True) -> list[Listed]:
    """Return the runs of some hosts, asked at once. The id of a run is HOST:RUN, its path that of its copy here.

    Args:
        asks: whether ssh may ask for a password; of several hosts none may.
    """
    hosts = list(targets)
    with ThreadPoolExecutor(min(MAX_LINES_AT_ONCE, max(1, len(hosts)))) as pool:
        return list(pool.map(lambda host: _listed(host, asks=asks and len(hosts) == 1), hosts))


class FarRuns:
    """The runs of the configured hosts, asked for again and again in a thread."""

    def __init__(self, hosts: Iterable[Target]) -> None:
        self._hosts = list(hosts)
        self._found: list[Listed] = []
        self._stop, self._told = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="far runs", daemon=True)
        if self._hosts:
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._found = listed(self._hosts, asks=False)
            self._told.set()
            self._stop.wait(EACH_SECONDS)

    def entries(self) -> list[RunEntry]:
        """Return the runs as they were last told, each with its host before its name."""
        return [
            replace(entry, name=f"{host.target.host}:{entry.name}") for host in self._found for entry in host.entries
        ]

    def where(self, path: Path) -> tuple[Target, str] | None:
        """Return the host and the id of the run that would be copied to a path; None for a run of this host."""
        for host in self._found:
            for entry in host.entries:
                if entry.path == path:
                    return host.target, entry.id.partition(":")[2]
        return None

    def unreached(self) -> list[str]:
        """Return a line for each host that could not be reached. Wait for the first round."""
        if self._hosts:
            self._told.wait(LIST_SECONDS)
        return [f"{host.target.host}: {host.error}" for host in self._found if host.error is not None]

    def close(self) -> None:
        self._stop.set()


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
    name = clean(f"{target.host}:{found.id}", 2 * MAX_NAME)
    return replace(found, id=name, path=copy_place(target.host, found.id))
