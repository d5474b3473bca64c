"""Make a run of a training that trainmon did not start, with what its log file holds already."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor import __version__
from monitor.console.log_parser import LogParser
from monitor.console.tracker import EMITTED_AT
from monitor.errors import UserError
from monitor.running import console_recorder, output, room, run_name
from monitor.running.followed import FOLLOWED
from monitor.running.foreign import Foreign, Log
from monitor.running.log_import import LogJournal, open_log
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.events import Event, Hello, Span, Step

MAX_HISTORY = 2 << 20  # bytes of the end of a log that are read: some seconds of parsing on a busy machine
# Seconds between the start of a process and what is its own in a log: a launcher before it opened the file, and
# printed times are whole seconds.
EARLIER_SECONDS = 60.0


@dataclass
class _History:
    """What a log held at the start."""

    begin: int = 0  # its first byte
    data: bytes = b""  # whole lines
    events: list[Event] = field(default_factory=list)
    saved: dict[str, Any] = field(default_factory=dict)  # for who reads on
    began: float = 0.0  # monotonic time of the first time in it
    own_start: bool = False  # whether it holds everything since the start of the process, with times


def attach_to(process: Foreign, patterns: tuple[re.Pattern[str], ...]) -> Path:
    """Make the run of a process, without its recorder. Return the run's directory.

    Raises:
        UserError: there is no room for a recorder, or the run cannot be written.
    """
    if (short := room.shortage()) is not None:
        raise UserError(f"not attached: {short}")
    names = (rundir.CONSOLE,) if len(process.logs) < 2 else output.STREAMS
    histories = [_history(log, process.started, patterns) for log in process.logs]
    try:
        output.check_room(rundir.runs_dir())
        run = _new_run(process, list(zip(process.logs, names, histories, strict=False)))
    except OSError as error:
        raise UserError(f"not attached: the run cannot be written: {error.strerror or error}") from None
    try:
        _keep_history(run, dict(zip(names, histories, strict=False)), process.started)
    except OSError as error:
        shutil.rmtree(run, ignore_errors=True)
        raise UserError(f"not attached: the run cannot be written: {error.strerror or error}") from None
    return run


def _new_run(process: Foreign, followed: list[tuple[Log, str, _History]]) -> Path:
    return rundir.new_run(
        run_name.run_name(process.command),
        command=process.command,
        cwd=process.cwd,
        version=__version__,
        attached=True,
        started=time.time() - (time.monotonic() - process.started),
        started_monotonic=process.started,
        **{FOLLOWED: [[log.source, name, history.begin] for log, name, history in followed]},
        **process_identity.identity_of(process.pid),
    )


def _keep_history(run: Path, histories: dict[str, _History], started: float) -> None:
    """Copy what the logs hold, and record the steps of the one that has most of them; of two the order is unknown."""
    for name, history in histories.items():
        target = output.open_append(run / name)
        try:
            rest = memoryview(history.data)
            while rest:
                rest = rest[os.write(target, rest) :]
        finally:
            os.close(target)
    kept = max(histories.values(), key=lambda history: len(history.events), default=_History())
    if not kept.data:
        return
    hello = Hello(
        producer="", seq=0, t=kept.began, process_started=min(started, kept.began) if kept.own_start else None
    )
    hello.wall = time.time() - (time.monotonic() - hello.t)
    journal = LogJournal(rundir.console_journal(run), hello)
    try:
        journal.write(kept.events)
    finally:
        journal.close()
    offsets = {name: len(history.data) for name, history in histories.items()}
    rundir.write_json(run / console_recorder.PROGRESS, {"offsets": offsets, **kept.saved})


def _history(log: Log, started: float, patterns: tuple[re.Pattern[str], ...]) -> _History:
    """Return what a log holds of this process; empty where it may be another one's.

    Its times, where there are any, count back from the last change of the file.
    """
    with open_log(Path(log.source)) as source:
        status = os.fstat(source.fileno())
        begin = max(0, status.st_size - MAX_HISTORY)
        data = os.pread(source.fileno(), status.st_size - begin, begin)
    begin += data.find(b"\n") + 1 if begin else 0
    data = data[begin - status.st_size :] if begin < status.st_size else b""
    data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    parser = LogParser(patterns)
    events = [*parser.feed(data)[1], *parser.finish()[1]]
    summary, saved = parser.summary, parser.saved_state()
    began = time.monotonic() - max(0.0, time.time() - status.st_mtime) - summary.seconds
    is_own = began > started - EARLIER_SECONDS if summary.timed else not log.appends or _born(log) > _wall(started)
    if not is_own or not summary.read:
        return _History(begin=status.st_size)
    for event in events:  # the parser's clock begins with 0
        event.t += began
        if isinstance(event, Step | Span):
            event.start += began
    if saved[EMITTED_AT] is not None:
        saved[EMITTED_AT] += began
    return _History(begin, data, events, saved, began, own_start=summary.timed > 0 and not begin)


def _wall(started: float) -> float:
    return time.time() - (time.monotonic() - started) - EARLIER_SECONDS


def _born(log: Log) -> float:
    """Return when a file was made, Unix time; 0 where the file system does not tell."""
    try:
        done = subprocess.run(["stat", "-L", "-c", "%W", "--", log.source], capture_output=True, timeout=5)
        return float(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0.0
