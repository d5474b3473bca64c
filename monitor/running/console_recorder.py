"""Record the training's output as a producer of its own, while it grows.

A line's time is the time of the poll that read it. Where hooks report the steps, only metrics are
recorded: a printed reward or validation loss may be reported nowhere else.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from monitor import settings
from monitor.console.line_times import ArrivalClock
from monitor.console.lines import Line, Terminal
from monitor.console.reader import Reader
from monitor.console.reading import Reading
from monitor.console.tracker import Tracker
from monitor.errors import UserError
from monitor.model.compute.mfu import UNMEASURED
from monitor.running import output
from monitor.running.journal_writer import Writer
from monitor.running.two_streams import in_order, one_counter
from monitor.runs.run_files import identity
from monitor.sources.tail_file import READ_BYTES, TailedFile
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event, Facts, Metrics, Note, Pulse, Step

POLL_SECONDS = 0.05  # between two polls; also the resolution of step times
PULSE_SECONDS = 1.0
REST_RATIO = 3.0  # pause after each poll of a flood, in units of its duration: at most a quarter of a core
HOOKS_SECONDS = 2.0  # between two checks for hooks that report steps
# Bytes read at once where hooks report the steps. Lines read together share a time, and are held until it is
# known, up to a kilobyte each: megabytes after a stop of some seconds. With hooks their time is not needed.
HOOKED_CHUNK = 4096
MAX_REST_SECONDS = 2.0  # at the end, for output not read yet
PROGRESS = ".console"  # file with the position reached, for a successor
_AMOUNTS = ("tokens_rate", "samples_rate", "tokens_total", "samples_total")
FIRST_STEP_SEARCH_BYTES = 256 * 1024  # bytes of a journal that are searched for its first step


class Stream:
    """Read one file of output."""

    def __init__(self, source: TailedFile, patterns: tuple[re.Pattern[str], ...]) -> None:
        self.source = source
        self._terminal = Terminal()
        self._reader = Reader(patterns)
        self._frame: Line | None = None  # an unfinished line that was read already
        self._still: Line | None = None  # a line that may be growing, as of the last poll

    def feed(self, data: bytes) -> list[Reading]:
        self._frame = self._still = None
        return [reading for line in self._terminal.feed(data) for reading in self._reader.read(line)]

    def finish(self) -> list[Reading]:
        readings = [reading for line in self._terminal.finish() for reading in self._reader.read(line)]
        return readings + self._reader.finish()

    def peek(self) -> list[Reading]:
        """Return the readings of a bar that is drawn and then does not change: its last frame ends with the next."""
        frame = self._terminal.frame()
        whole = frame is not None
        if not whole:
            frame, self._still = self._still, self._terminal.frame(still=True)
            frame = frame if frame == self._still else None
        if frame is None or frame == self._frame:
            return []
        self._frame = frame
        # By separate readers: the line is read again when it ends, and must not open a block or table twice.
        readings = self._apart(frame)
        # The position comes first, the last value may be cut: `loss: 0.4` of `loss: 0.4215`.
        before = {} if whole else {part.family: part for part in self._apart(_without_last_word(frame))}
        for reading in readings:
            reading.impossible.clear()  # impossible values are counted only when the line ends
            if not whole:
                reading.metrics.clear()
                for name in _AMOUNTS:
                    setattr(reading, name, getattr(before.get(reading.family), name, None))
        return [reading for reading in readings if reading.family == "bar" or (whole and reading.family == "step")]

    def _apart(self, frame: Line) -> list[Reading]:
        return Reader(self._reader.patterns, self._reader.lead).read(frame)


def _without_last_word(frame: Line) -> Line:
    return replace(frame, text=frame.text.rstrip().rpartition(" ")[0])


class ConsoleRecorder:
    """Follow the output of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        now = time.monotonic()
        launched = identity(run).get("started_monotonic")  # the recorder comes up later than the program
        self._clock = ArrivalClock(now, min(now, launched) if isinstance(launched, int | float) else now)
        self._tracker = Tracker(self._clock)
        self._writer: Writer | None = None
        self._pulsed = self._hooks_checked = 0.0
        self._pulsing = False
        self._is_hooked = False
        sources = _sources(run)  # before anything else: files of a short run are removed soon
        self._restore_progress(sources)
        patterns = self._patterns()
        self._streams = [Stream(source, patterns) for source in sources]

    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        try:
            return settings.patterns()
        except UserError as error:
            text = f"console: your own patterns are ignored: {error}"
            self._write(
                [Note(producer="", seq=0, t=self._clock.now, text=text, level="warning", code="console-pattern")]
            )
            return ()

    def record(self, over: Callable[[float], bool]) -> None:
        """Read until `over`, which waits for the given seconds, returns true."""
        pause = POLL_SECONDS
        while not over(pause):
            began = time.monotonic()
            more = self.step()
            pause = max(REST_RATIO * (time.monotonic() - began), 0.0 if more else POLL_SECONDS)

    def finish(self) -> None:
        """Read the remaining output after the program has ended."""
        self._read_rest()
        for stream in self._streams:
            self._add_readings(stream.finish())
        self._write(self._tracker.drain(self._clock.now, last=True))
        for stream in self._streams:
            stream.source.close()
        if self._writer is not None:
            self._writer.close()

    def _read_rest(self) -> None:
        until = time.monotonic() + MAX_REST_SECONDS
        while self.step():
            if time.monotonic() > until:
                text = "console: the end of a long output was not read in time"
                self._write(
                    [Note(producer="", seq=0, t=self._clock.now, text=text, level="warning", code="console-unread")]
                )
                return

    def step(self) -> bool:
        """Read new output, up to a bound. Return whether there may be more."""
        now = time.monotonic()
        most = HOOKED_CHUNK if self._is_hooked else READ_BYTES
        chunks = [(*stream.source.read(most), stream) for stream in self._streams]
        chunks.sort(key=lambda row: -row[1])
        readings = [stream.feed(data) if data else stream.peek() for data, _, stream in chunks]
        if one_counter(readings):
            self._clock.now = max(self._clock.now, now - chunks[0][1])
            self._add_readings(in_order(readings))
        else:
            for (data, age, _), new_readings in zip(chunks, readings, strict=True):
                if data:
                    self._clock.now = max(self._clock.now, now - age)
                self._add_readings(new_readings)
        out = self._tracker.drain(now)
        if out:
            self._write(out)
            self._save_progress()
        self._pulse(now)
        return any(len(data) == most for data, *_ in chunks)

    def _add_readings(self, readings: list[Reading]) -> None:
        for reading in readings:
            self._tracker.add_reading(reading)

    def _pulse(self, now: float) -> None:
        """Report once a second what is open, even if nothing is: no pulse means that the recorder died."""
        if now - self._pulsed < PULSE_SECONDS or self._hooked():
            return
        self._pulsed = now
        pulse = self._tracker.pulse(now)
        if pulse is not None or self._pulsing:
            self._pulsing = True
            self._write([pulse or Pulse(producer="", seq=0, t=now)])

    def _write(self, batch: list[Event]) -> None:
        if self._hooked():
            batch = [metrics for event in batch for metrics in _metrics(event)]
        if not batch:
            return
        if self._writer is None:  # only now: without readings there is no such producer
            self._writer = Writer(self._run, "console")
        self._writer.write(*batch)

    def _hooked(self) -> bool:
        """Return whether a process of the training reports its steps by hooks, which replace those of the output."""
        now = time.monotonic()
        if not self._is_hooked and now - self._hooks_checked >= HOOKS_SECONDS:
            self._hooks_checked = now
            self._is_hooked = any(_has_steps(path) for path in self._run.glob("rank-*.jsonl"))
            if self._is_hooked:
                # Only metrics are recorded, and the last step of a reading has them. Mixed lines of several ranks
                # would otherwise make thousands of steps that are dropped.
                self._tracker.most = 1
        return self._is_hooked

    def _save_progress(self) -> None:
        offsets = {stream.source.name: stream.source.offset for stream in self._streams}
        with contextlib.suppress(OSError):  # a full disk: a successor begins at the end of the output
            rundir.write_json(self._run / PROGRESS, {"offsets": offsets, **self._tracker.saved_state()})

    def _restore_progress(self, sources: list[TailedFile]) -> None:
        """Continue where another recorder of this run stopped."""
        if not rundir.console_journal(self._run).exists():
            return
        known = rundir.read_json(self._run / PROGRESS)
        offsets = known.get("offsets") if known is not None else None
        if known is None or not isinstance(offsets, dict):
            for source in sources:
                source.skip_to_end()
            return
        for source in sources:
            offset = offsets.get(source.name)
            if isinstance(offset, int):
                source.offset = offset
            else:
                source.skip_to_end()
        self._tracker.restore_state(known)


def _sources(run: Path) -> list[TailedFile]:
    """Open the program's two streams where they are kept apart, else the one file."""
    for names in ((output.STDOUT, output.STDERR), (rundir.CONSOLE,)):
        with contextlib.suppress(OSError):
            return [TailedFile(run / name) for name in names]
    return []


def _metrics(event: Event) -> list[Event]:
    """Return the events to record beside the steps that hooks report: metrics, the position, notes about MFU."""
    if isinstance(event, Step):
        return (
            [Metrics(producer="", seq=0, t=event.t, values=event.metrics, step=event.index, role=event.role)]
            if event.metrics
            else []
        )
    if isinstance(event, Facts):  # the printed position is compared with the hooks' steps, and replaces none
        return [Facts(producer="", seq=0, t=event.t, facts=event.facts)] if event.facts else []
    if isinstance(event, Note) and event.text.endswith(UNMEASURED):  # only the output tells whose MFU it is
        return [event]
    return [event] if isinstance(event, Metrics) else []


def _has_steps(journal: Path) -> bool:
    try:
        with open(journal, "rb") as source:
            return b'"kind":"step' in source.read(FIRST_STEP_SEARCH_BYTES)  # or "steps"
    except OSError:
        return False
