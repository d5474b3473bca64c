"""Parse a finished log into readings, events, and a summary of both."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from monitor.console.line_times import PrintedClock
from monitor.console.lines import Line, Terminal
from monitor.console.reader import DIGIT, Reader
from monitor.console.reading import Reading
from monitor.console.tracker import Tracker
from trainhooks.protocol.events import Event, Facts, Metrics, Note, Span, Step
from trainhooks.protocol.limits import clean

MAX_UNREAD = 10  # lines with numbers that are shown because nothing was read from them
MAX_UNREAD_TEXT = 160  # characters of such a line
MAX_NAMES = 2000  # of metrics, phases and notes


@dataclass(slots=True)
class LogSummary:
    """What was read from a log. The field names are keys of `trainmon lines --json`."""

    lines: int = 0
    read: int = 0  # of these, lines with readings
    families: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    skipped: int = 0
    timed: int = 0  # steps whose duration is known
    start_step: int = 0
    total: int | None = None
    seconds: float = 0.0  # between the first known time and the last
    metrics: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    spans: dict[str, float] = field(default_factory=dict)
    impossible: dict[str, int] = field(default_factory=dict)
    other_ranks: int = 0  # lines left out
    notes: list[str] = field(default_factory=list)
    silent: int = 0  # lines with numbers from which nothing was read
    silent_first: list[tuple[int, str]] = field(default_factory=list)


class LogParser:
    """Parse the bytes of a log into readings and events; `summary` is complete after `finish`."""

    def __init__(self, patterns: tuple[re.Pattern[str], ...] = ()) -> None:
        self.summary = LogSummary()
        self._terminal = Terminal()
        self._reader = Reader(patterns)
        self._clock = PrintedClock()
        self._tracker = Tracker(self._clock)
        self._counted = 0  # the last line that was counted as read

    def feed(self, data: bytes) -> tuple[list[Reading], list[Event]]:
        """Return the readings of the lines that ended in `data`, and the events that are ready."""
        readings = [reading for line in self._terminal.feed(data) for reading in self._line(line)]
        return readings, self._events(readings)

    def finish(self) -> tuple[list[Reading], list[Event]]:
        """Return the remaining readings and events at the end of the log."""
        readings = [reading for line in self._terminal.finish() for reading in self._line(line)]
        readings += self._reader.finish()
        events = self._events(readings, last=True)
        self.summary.impossible = dict(self._tracker.reported.impossible)
        self.summary.other_ranks = self._reader.foreign
        self.summary.seconds = self._clock.now
        return readings, events

    def saved_state(self) -> dict[str, Any]:
        """Return the count at the end, for who reads on what is printed later."""
        return self._tracker.saved_state()

    def _line(self, line: Line) -> list[Reading]:
        summary = self.summary
        summary.lines = max(summary.lines, line.number if line.text or line.frame else line.number - 1)
        foreign = self._reader.foreign
        readings = self._reader.read(line)
        was_read = bool(readings) or self._reader.occupied or self._reader.foreign > foreign
        if was_read and line.number > self._counted:
            self._counted = line.number
            summary.read += 1
        elif not was_read and DIGIT.search(line.text):
            summary.silent += 1
            if len(summary.silent_first) < MAX_UNREAD:
                summary.silent_first.append((line.number, clean(line.text[:1000], MAX_UNREAD_TEXT)))
        for reading in readings:
            summary.families[reading.family] = summary.families.get(reading.family, 0) + 1
        return readings

    def _events(self, readings: list[Reading], last: bool = False) -> list[Event]:
        for reading in readings:
            self._tracker.add_reading(reading)
        out = self._tracker.drain(last=last)
        for event in out:
            self._count(event)
        return out

    def _count(self, event: Event) -> None:
        summary = self.summary
        if isinstance(event, Step):
            summary.steps += 1
            summary.skipped += event.status != "ok"
            summary.timed += event.duration > 0
            prefix = f"{event.role}/" if event.role else ""
            _add(summary.metrics, [prefix + name for name in event.metrics])
            _add(summary.phases, [name for name, *_ in event.phases])
        elif isinstance(event, Metrics):
            prefix = f"{event.role}/" if event.role else ""
            _add(summary.metrics, [prefix + name for name in event.values])
        elif isinstance(event, Span):
            summary.spans[event.name] = summary.spans.get(event.name, 0.0) + event.duration
        elif isinstance(event, Facts):
            summary.total = event.total_steps if event.total_steps is not None else summary.total
            summary.start_step = event.start_step if event.start_step is not None else summary.start_step
        elif isinstance(event, Note):
            _add(summary.notes, [event.text])


def _add(names: list[str], more: list[str]) -> None:
    for name in more:
        if name not in names and len(names) < MAX_NAMES:
            names.append(name)
