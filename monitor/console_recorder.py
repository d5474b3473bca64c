"""Reads the training's output while it grows, and writes down what it says as a producer of its own.

Arrival is the clock: a line is as old as the look that found it. Programs whose hooks tell their steps need none of
this, and their output is left alone as soon as they do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor import config
from monitor.console.clock import Arrival
from monitor.console.reader import Reader
from monitor.console.terminal import Line, Terminal
from monitor.console.tracker import Tracker
from monitor.recorder import Writer
from monitor.runs import UserError
from trainhooks import rundir
from trainhooks.events import Event, Note, Pulse

LOOK = 0.05  # seconds between two looks: as exact as the times of steps can be
PULSE = 1.0
CHUNK = 128 * 1024  # bytes read at once
REST = 3.0  # times as long as the reading took, of a flood, it rests: a quarter of a core at most
HOOKED = 2.0  # seconds between two looks for hooks that tell steps
SKEW = 10.0  # seconds; a file's time that is older than that comes from another machine's clock
LAST = 2.0  # seconds at the end for what has not been read
PROGRESS = ".console"  # how far it came, for a successor
HEAD = 256 * 1024  # bytes of a journal that are searched for its first step


class ConsoleRecorder:
    """Follows the output of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._terminal = Terminal()
        self._clock = Arrival(time.monotonic())
        self._tracker = Tracker(self._clock)
        self._writer: Writer | None = None
        self._offset = 0
        self._pulsed = self._looked = 0.0
        self._pulsing = False
        self._frame: Line | None = None  # an unfinished one that was read already
        self._recall()
        self._reader = Reader(self._patterns())

    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        try:
            return config.patterns()
        except UserError as error:
            text = f"console: the patterns of your own are not used: {error}"
            self._write([Note("", 0, self._clock.now, text, "warning", "console-pattern")])
            return ()

    def record(self, over: Callable[[float], bool]) -> None:
        """Read until `over`, which waits for the given seconds, says so."""
        pause = LOOK
        while not over(pause) and not self._hooked():
            began = time.monotonic()
            more = self.step()
            pause = max(REST * (time.monotonic() - began), 0.0 if more else LOOK)

    def finish(self) -> None:
        """Read what is left, when the program has ended."""
        if self._hooked():
            return
        until = time.monotonic() + LAST
        while self.step():
            if time.monotonic() > until:
                text = "console: the end of a long output was not read in time"
                self._write([Note("", 0, self._clock.now, text, "warning", "console-unread")])
                break
        self._feed(self._terminal.finish())
        for reading in self._reader.finish():
            self._tracker.take(reading)
        self._write(self._tracker.drain(self._clock.now, last=True))
        if self._writer is not None:
            self._writer.close()

    def step(self) -> bool:
        """Read what has come, up to a bound; whether there may be more."""
        data, age = self._read()
        now = time.monotonic()
        self._clock.now = max(self._clock.now, now - age)
        if data:
            self._frame = None
            self._feed(self._terminal.feed(data))
        else:
            self._peek()
        out = self._tracker.drain(now)
        if out:
            self._write(out)
            self._remember()
        self._pulse(now)
        return len(data) == CHUNK

    def _feed(self, lines: list[Line]) -> None:
        for line in lines:
            for reading in self._reader.read(line):
                self._tracker.take(reading)

    def _peek(self) -> None:
        """A bar that is drawn and then stands still: nothing ends its last frame until the next one."""
        frame = self._terminal.frame()
        if frame is None or frame == self._frame:
            return
        self._frame = frame
        # By a reader of its own: the line will be read once more, when it ends, and what lines open must open once.
        for reading in Reader(self._reader.patterns, self._reader.lead).read(frame):
            reading.impossible.clear()  # what cannot be true is counted once
            if reading.family in ("bar", "step"):
                self._tracker.take(reading)

    def _read(self) -> tuple[bytes, float]:
        """What has come, and how long ago the last of it was written: a look may be late, the file's time is not."""
        try:
            with open(self._run / rundir.CONSOLE, "rb", buffering=0) as source:
                found = os.fstat(source.fileno())
                if found.st_size < self._offset:  # emptied by somebody: what is new counts
                    self._offset = 0
                data = os.pread(source.fileno(), CHUNK, self._offset)
        except OSError:  # not there yet
            return b"", 0.0
        self._offset += len(data)
        age = time.time() - found.st_mtime if data and self._offset >= found.st_size else 0.0
        return data, age if 0 <= age < SKEW else 0.0

    def _pulse(self, now: float) -> None:
        """Say once a second what is open; when nothing is, that nothing is: silence would mean something else."""
        if now - self._pulsed < PULSE:
            return
        self._pulsed = now
        pulse = self._tracker.pulse(now)
        if pulse is not None or self._pulsing:
            self._pulsing = True
            self._write([pulse or Pulse("", 0, now)])

    def _write(self, batch: list[Event]) -> None:
        if not batch:
            return
        if self._writer is None:  # only now: a run whose output says nothing has no such producer
            self._writer = Writer(self._run, "console")
        self._writer.write(*batch)

    def _hooked(self) -> bool:
        """Whether a process of the training tells its steps itself: then its word counts, and not its output's."""
        now = time.monotonic()
        if now - self._looked < HOOKED:
            return False
        self._looked = now
        return any(_tells_steps(path) for path in self._run.glob("rank-*.jsonl"))

    def _remember(self) -> None:
        known = {"offset": self._offset, **self._tracker.memory()}
        with contextlib.suppress(OSError):  # a full disk: a successor begins at the end of the output
            (self._run / PROGRESS).write_text(json.dumps(known))

    def _recall(self) -> None:
        """Go on where another recorder of this run came to."""
        if not rundir.console_journal(self._run).exists():
            return
        known: dict[str, Any] | None = rundir.read_json(self._run / PROGRESS)
        if known is not None and isinstance(known.get("offset"), int):
            self._offset = known["offset"]
            self._tracker.recall(known)
            return
        with contextlib.suppress(OSError):
            self._offset = (self._run / rundir.CONSOLE).stat().st_size


def _tells_steps(journal: Path) -> bool:
    try:
        with open(journal, "rb") as source:
            return b'"kind":"step"' in source.read(HEAD)
    except OSError:
        return False


class Watch:
    """A thread that reads a run's output, until `finish`."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            recorder = ConsoleRecorder(self._run)
            recorder.record(self._over.wait)
            self._over.wait()
            recorder.finish()
        except Exception:
            # Whatever a program prints, and whatever is wrong here, the rest of the recording goes on without it.
            traceback.print_exc()

    def finish(self) -> None:
        """Everything has been printed: wait, but not for long, until it is read."""
        self._over.set()
        self._thread.join(2 * LAST)
