"""A finished log, imported as a run. What the log does not contain stays unknown."""

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
from monitor.console import line_prefixes
from monitor.console.formats.json_lines import read_dict
from monitor.console.log_parser import LogParser, LogSummary
from monitor.console.printed_error import printed_error
from monitor.console.reading import Reading
from monitor.errors import UserError
from monitor.running import output
from monitor.running.exit_record import ERROR_SEARCH_BYTES
from monitor.sources import tracker_files
from trainhooks.protocol import encoding, events, rundir
from trainhooks.protocol.events import Event
from trainhooks.protocol.journal import Journal

LOG_CHUNK = 1 << 20  # bytes read at once
FIRST_BYTES = 1 << 20  # bytes that are searched for the first time of day


def import_log(source: Path, name: str | None, patterns: tuple[re.Pattern[str], ...]) -> tuple[Path, LogSummary]:
    """Create a run from a log. Return its directory and a summary.

    Times are those in the log, counted from the first one; the run's start is known only where a line has a
    date. How the program ended is known where the log ends with a traceback; else the run's state is `lost`.

    Raises:
        UserError: the log cannot be read, or the run cannot be written.
    """
    with open_log(source) as log:
        wall = _first_time(log.read(FIRST_BYTES))
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
    """Open a log for reading; a tracker's file, or a folder of them, is read as lines.

    Raises:
        UserError: it does not exist, is broken, or is a directory without such files.
    """
    try:
        if not source.is_file() and not source.is_dir():
            return open(source, "rb")  # a pipe is not looked into
        lines = tracker_files.as_lines(source)
        if lines is None and source.is_dir():
            raise UserError(f"{source} is a directory without a tracker's files; name the log in it")
        return open(source, "rb") if lines is None else lines
    except OSError as error:
        raise UserError(f"{source}: {error.strerror or error}") from None


def _first_time(head: bytes) -> float | None:
    """Return the Unix time of the first line with a date, assuming this machine's time zone; None without one."""
    for line in head.split(b"\n")[:20_000]:
        reading = Reading("metrics")
        if line.startswith(b"{") and read_dict(line.decode("utf-8", "replace"), reading) and reading.wall:
            return reading.wall
        wall, _ = line_prefixes.wall(line[:200].decode("utf-8", "replace"))
        if wall is not None and wall > line_prefixes.DAY:
            with contextlib.suppress(ValueError, OverflowError):
                return time.mktime(time.gmtime(wall)) + wall % 1.0
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


def _copy(log: BinaryIO, run: Path, wall: float | None, patterns: tuple[re.Pattern[str], ...]) -> LogSummary:
    parser = LogParser(patterns)
    journal = LogJournal(
        rundir.console_journal(run, "import"), events.Hello(producer="", seq=0, t=0.0, wall=wall or 0.0)
    )
    console = output.open_append(run / rundir.CONSOLE)
    try:
        while data := log.read(LOG_CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(console, rest) :]
            journal.write(parser.feed(data)[1])
        journal.write(parser.finish()[1])
        _write_end(log, run, journal, parser.summary.seconds)
    finally:
        os.close(console)
        journal.close()
    return parser.summary


def _write_end(log: BinaryIO, run: Path, journal: LogJournal, now: float) -> None:
    """Record the uncaught exception that the log ends with: Python's exit code is 1 then. Other ends are not known."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - ERROR_SEARCH_BYTES))
    printed = printed_error(log.read(ERROR_SEARCH_BYTES).decode(errors="replace"), "/")
    if printed is None or printed.place is None:
        return
    exit_ = events.Exit(producer="", seq=0, t=now, exit_code=1, signal=None)
    exit_.error, exit_.place = printed.error, printed.place
    journal.write([exit_])
    rundir.write_json(run / rundir.EXIT, {"exit_code": 1, "signal": None, "ended": None, "ended_monotonic": now})


class LogJournal:
    """Write the journal of what stood in a log: one producer, whose clock is the log's."""

    def __init__(self, path: Path, hello: events.Hello) -> None:
        self._journal = Journal(path)
        self._producer = f"console-{uuid.uuid4().hex[:8]}"
        self._seq = 0
        self._encode = encoding.encoder()
        hello.source = "console"
        self.write([hello])

    def write(self, batch: list[Event]) -> None:
        for event in batch:
            self._seq += 1
            event.producer, event.seq = self._producer, self._seq
        lines = b"".join(self._encode(encoding.to_dict(event)) + b"\n" for event in batch)
        self._journal.append(lines, len(batch))
        if self._journal.waiting_events or self._journal.dropped:
            raise OSError(None, "the journal cannot be written: the disk is full")

    def close(self) -> None:
        self._journal.close()
