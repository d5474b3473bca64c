"""Reads the training's output while it grows, and writes down what it says as a producer of its own.

Arrival is the clock: a line is as old as the look that found it. Of programs whose hooks tell their steps only the
metrics are taken: a printed reward or validation loss may be told nowhere else.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from monitor.console import abreast
from monitor.console.clock import Arrival
from monitor.console.reader import Reader
from monitor.console.reading import Reading
from monitor.console.terminal import Line, Terminal
from monitor.console.tracker import Tracker
from monitor.errors import UserError
from monitor.model.own_mfu import MARKS
from monitor.running import output
from monitor.running.writer import Writer
from monitor.settings import config
from monitor.sources.growing import CHUNK, Growing
from trainhooks import rundir
from trainhooks.events import Event, Metrics, Note, Pulse, Step

LOOK = 0.05  # seconds between two looks: as exact as the times of steps can be
PULSE = 1.0
REST = 3.0  # times as long as the reading took, of a flood, it rests: a quarter of a core at most
HOOKED = 2.0  # seconds between two looks for hooks that tell steps
# Bytes read at once where hooks tell the steps. Lines that came together share a time, and are held until it is known:
# as much as a kilobyte each, which after a stop of some seconds is megabytes. Where hooks tell it, nobody asks for it.
SIP = 4096
LAST = 2.0  # seconds at the end for what has not been read
PROGRESS = ".console"  # how far it came, for a successor
HEAD = 256 * 1024  # bytes of a journal that are searched for its first step


class Stream:
    """One file of output, read as lines of its own."""

    def __init__(self, source: Growing, patterns: tuple[re.Pattern[str], ...]) -> None:
        self.source = source
        self._terminal = Terminal()
        self._reader = Reader(patterns)
        self._frame: Line | None = None  # an unfinished one that was read already
        self._still: Line | None = None  # one that may be growing, as it stood at the last look

    def feed(self, data: bytes) -> list[Reading]:
        self._frame = self._still = None
        return [reading for line in self._terminal.feed(data) for reading in self._reader.read(line)]

    def finish(self) -> list[Reading]:
        readings = [reading for line in self._terminal.finish() for reading in self._reader.read(line)]
        return readings + self._reader.finish()

    def peek(self) -> list[Reading]:
        """A bar that is drawn and then stands still: nothing ends its last frame until the next one."""
        frame = self._terminal.frame()
        whole = frame is not None
        if not whole:
            frame, self._still = self._still, self._terminal.frame(still=True)
            frame = frame if frame == self._still else None
        if frame is None or frame == self._frame:
            return []
        self._frame = frame
        # By a reader of its own: the line will be read once more, when it ends, and what lines open must open once.
        readings = Reader(self._reader.patterns, self._reader.lead).read(frame)
        for reading in readings:
            reading.impossible.clear()  # what cannot be true is counted once
            if not whole:  # how far it has come stands before what may be cut: `loss: 0.4` of `loss: 0.4215`
                reading.metrics.clear()
                reading.tokens_rate = reading.samples_rate = reading.tokens_total = reading.samples_total = None
        return [reading for reading in readings if reading.family == "bar" or (whole and reading.family == "step")]


class ConsoleRecorder:
    """Follows the output of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._clock = Arrival(time.monotonic())
        self._tracker = Tracker(self._clock)
        self._writer: Writer | None = None
        self._pulsed = self._looked = 0.0
        self._pulsing = False
        self._is_hooked = False
        sources = _sources(run)  # before anything else: a short run's files are about to go
        self._recall(sources)
        patterns = self._patterns()
        self._streams = [Stream(source, patterns) for source in sources]

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
        while not over(pause):
            began = time.monotonic()
            more = self.step()
            pause = max(REST * (time.monotonic() - began), 0.0 if more else LOOK)

    def finish(self) -> None:
        """Read what is left, when the program has ended."""
        self._read_rest()
        for stream in self._streams:
            self._take(stream.finish())
        self._write(self._tracker.drain(self._clock.now, last=True))
        for stream in self._streams:
            stream.source.close()
        if self._writer is not None:
            self._writer.close()

    def _read_rest(self) -> None:
        until = time.monotonic() + LAST
        while self.step():
            if time.monotonic() > until:
                text = "console: the end of a long output was not read in time"
                self._write([Note("", 0, self._clock.now, text, "warning", "console-unread")])
                return

    def step(self) -> bool:
        """Read what has come, up to a bound; whether there may be more."""
        now = time.monotonic()
        most = SIP if self._is_hooked else CHUNK
        came = [(*stream.source.read(most), stream) for stream in self._streams]
        came.sort(key=lambda row: -row[1])
        told = [stream.feed(data) if data else stream.peek() for data, _, stream in came]
        if abreast.number_the_same(told):
            self._clock.now = max(self._clock.now, now - came[0][1])
            self._take(abreast.in_order(told))
        else:
            for (data, age, _), readings in zip(came, told, strict=True):
                if data:
                    self._clock.now = max(self._clock.now, now - age)
                self._take(readings)
        out = self._tracker.drain(now)
        if out:
            self._write(out)
            self._remember()
        self._pulse(now)
        return any(len(data) == most for data, *_ in came)

    def _take(self, readings: list[Reading]) -> None:
        for reading in readings:
            self._tracker.take(reading)

    def _pulse(self, now: float) -> None:
        """Say once a second what is open; when nothing is, that nothing is: silence would mean something else."""
        if now - self._pulsed < PULSE or self._hooked():
            return
        self._pulsed = now
        pulse = self._tracker.pulse(now)
        if pulse is not None or self._pulsing:
            self._pulsing = True
            self._write([pulse or Pulse("", 0, now)])

    def _write(self, batch: list[Event]) -> None:
        if self._hooked():
            batch = [metrics for event in batch for metrics in _metrics(event)]
        if not batch:
            return
        if self._writer is None:  # only now: a run whose output says nothing has no such producer
            self._writer = Writer(self._run, "console")
        self._writer.write(*batch)

    def _hooked(self) -> bool:
        """Whether a process of the training tells its steps itself: then its word counts, and not its output's."""
        now = time.monotonic()
        if not self._is_hooked and now - self._looked >= HOOKED:
            self._looked = now
            self._is_hooked = any(_tells_steps(path) for path in self._run.glob("rank-*.jsonl"))
            if self._is_hooked:
                # Only the last step of a reading has metrics, and nothing else is taken. Where the lines of several
                # ranks are torn into each other, thousands of steps a line would be made and thrown away.
                self._tracker.most = 1
        return self._is_hooked

    def _remember(self) -> None:
        offsets = {stream.source.name: stream.source.offset for stream in self._streams}
        with contextlib.suppress(OSError):  # a full disk: a successor begins at the end of the output
            rundir.write_json(self._run / PROGRESS, {"offsets": offsets, **self._tracker.memory()})

    def _recall(self, sources: list[Growing]) -> None:
        """Go on where another recorder of this run came to."""
        if not rundir.console_journal(self._run).exists():
            return
        known = rundir.read_json(self._run / PROGRESS)
        offsets = known.get("offsets") if known is not None else None
        if known is None or not isinstance(offsets, dict):
            for source in sources:
                source.to_end()
            return
        for source in sources:
            offset = offsets.get(source.name)
            if isinstance(offset, int):
                source.offset = offset
            else:
                source.to_end()
        self._tracker.recall(known)


def _sources(run: Path) -> list[Growing]:
    """The program's two streams where they are kept apart, else the one file: nothing of it has been lost or mixed."""
    for names in ((output.STDOUT, output.STDERR), (rundir.CONSOLE,)):
        with contextlib.suppress(OSError):
            return [Growing(run / name) for name in names]
    return []


def _metrics(event: Event) -> list[Event]:
    """What a line adds to steps that are told by others."""
    if isinstance(event, Step):
        return (
            [Metrics("", 0, event.t, values=event.metrics, step=event.index, role=event.role)] if event.metrics else []
        )
    if isinstance(event, Note) and event.text.endswith(MARKS):  # whose MFU it prints, nothing else gives away
        return [event]
    return [event] if isinstance(event, Metrics) else []


def _tells_steps(journal: Path) -> bool:
    try:
        with open(journal, "rb") as source:
            return b'"kind":"step"' in source.read(HEAD)
    except OSError:
        return False
