"""`trainmon import`: a finished log made into a run. What the log does not tell stays unknown."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from pathlib import Path
from typing import BinaryIO

from monitor import __version__
from monitor.console import prefixes
from monitor.console.survey import Summary, Survey
from monitor.errors import UserError
from monitor.running import output
from trainhooks import events, rundir
from trainhooks.events import Event
from trainhooks.journal import Journal

CHUNK = 1 << 20
HEAD = 1 << 20  # bytes in which the first time of day is looked for


def import_log(source: Path, name: str | None, patterns: tuple[re.Pattern[str], ...]) -> tuple[Path, Summary]:
    """Make a run of a log.

    Times are those that the log tells, counted from its first one; the run's start is known only where a line has a
    date. How the program ended is not known, so the run's state is `lost`.

    Raises:
        UserError: the log cannot be read, or the run cannot be written.
    """
    with open_log(source) as log:
        wall = _first_time(log.read(HEAD))
        log.seek(0)
        try:
            run = _new_run(source, name, wall)
        except OSError as error:
            raise UserError(f"the run's directory cannot be made: {error.strerror or error}") from None
        try:
            return run, _copy(log, run, wall, patterns)
        except OSError as error:
            shutil.rmtree(run, ignore_errors=True)
            raise UserError(f"{source}: {error.strerror or error}") from None


def open_log(source: Path) -> BinaryIO:
    """The log, open for reading.

    Raises:
        UserError: there is none, or it is no file.
    """
    try:
        if source.is_dir():
            raise UserError(f"{source} is a directory; name the log in it")
        return open(source, "rb")
    except OSError as error:
        raise UserError(f"{source}: {error.strerror or error}") from None


def _first_time(head: bytes) -> float | None:
    """The Unix time of the first line that has a date; its zone is taken to be this machine's."""
    for line in head.split(b"\n")[:20_000]:
        told, _ = prefixes.wall(line[:200].decode("utf-8", "replace"))
        if told is not None and told > prefixes.DAY:
            with contextlib.suppress(ValueError, OverflowError):
                return time.mktime(time.gmtime(told)) + told % 1.0
    return None


def _new_run(source: Path, name: str | None, wall: float | None) -> Path:
    return rundir.new_run(
        name or source.stem,
        named=name is not None,
        imported=True,
        imported_at=time.time(),
        imported_from=str(source.absolute()),
        started=wall,
        started_monotonic=0.0,
        host=None,
        boot_id=None,
        version=__version__,
    )


def _copy(log: BinaryIO, run: Path, wall: float | None, patterns: tuple[re.Pattern[str], ...]) -> Summary:
    survey = Survey(patterns)
    journal = _Writer(rundir.console_journal(run, "import"), wall)
    console = output.create(run / rundir.CONSOLE)
    try:
        while data := log.read(CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(console, rest) :]
            journal.write(survey.feed(data)[1])
        journal.write(survey.finish()[1])
    finally:
        os.close(console)
        journal.close()
    return survey.summary


class _Writer:
    """The journal of an import: one producer, whose clock begins with the log."""

    def __init__(self, path: Path, wall: float | None) -> None:
        self._journal = Journal(path)
        self._producer = f"console-{uuid.uuid4().hex[:8]}"
        self._seq = 0
        self._encode = events.encoder()
        self.write([events.Hello("", 0, 0.0, source="console", wall=wall or 0.0)])

    def write(self, batch: list[Event]) -> None:
        for event in batch:
            self._seq += 1
            event.producer, event.seq = self._producer, self._seq
        lines = b"".join(self._encode(events.to_dict(event)) + b"\n" for event in batch)
        self._journal.append(lines, len(batch))
        if self._journal.waiting_lines or self._journal.dropped:
            raise OSError(None, "the journal cannot be written: the disk is full")

    def close(self) -> None:
        self._journal.close()
