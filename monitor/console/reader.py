"""Turn lines into readings: what stands before the text is removed, then every format is tried. Parse a finished log.

What a line means may depend on the lines before it: an open block or table, and the ranks that were seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.console import field_mapping, lines
from monitor.console.field_mapping import read_pattern
from monitor.console.formats import Format, registered
from monitor.console.lines import Line, PrintedClock, Terminal
from monitor.console.reading import MAX_LINE_CHARACTERS, Reading
from monitor.console.step_labels import LeadingNumbers
from monitor.console.tracker import Tracker
from trainhooks.protocol.events import Event, Facts, Metrics, Note, Span, Step
from trainhooks.protocol.limits import clean

_DIGIT = re.compile(r"[0-9]")
_NONFINITE = re.compile(r"\b(?:nan|NaN|NAN|[Ii]nf(?:inity)?|INF)\b")


@dataclass(slots=True)
class Reader:
    """Read the lines of one stream."""

    patterns: tuple[re.Pattern[str], ...] = ()  # the user's own
    lead: int | None = None  # the lowest rank that reported steps: only its lines count
    foreign: int = 0  # lines of other ranks, left out
    _bare_ranks: bool = False  # whether `0: ` before a line is known to be a rank
    _formats: list[Format] = field(default_factory=lambda: [form() for form in registered()])
    _marks: tuple[str, ...] = field(init=False)  # a line that begins with one may be read though it has no number
    _stateful: list[Format] = field(init=False)
    _leading: LeadingNumbers = field(default_factory=LeadingNumbers)
    _last: Line | None = None

    def __post_init__(self) -> None:
        self._marks = tuple(mark for form in self._formats for mark in form.marks)
        self._stateful = [form for form in self._formats if type(form).close is not Format.close]

    def read(self, line: Line) -> list[Reading]:
        """Return the readings of earlier lines that this line completes, then its own."""
        self._last = line
        readings = self._read(line)
        for reading in readings:
            reading.number = reading.number or line.number
            reading.row = line.row
        return [ready for reading in readings for ready in self._leading.add_reading(reading)]

    @property
    def occupied(self) -> bool:
        """Return whether the last line belongs to a block or table that is still open."""
        return self._leading.waiting or any(form.open for form in self._stateful)

    def finish(self) -> list[Reading]:
        """Return the readings of what was open when the output ended."""
        ended = self._close()
        for reading in ended:
            reading.number = self._last.number if self._last is not None else 0
        return self._leading.release() + ended

    def _close(self) -> list[Reading]:
        return [reading for form in self._stateful for reading in form.close()]

    def _read(self, line: Line) -> list[Reading]:
        text = line.text
        ended: list[Reading] = []
        for form in self._stateful:
            if form.exclusive and form.open:
                bare = _without_prefixes(text)
                if line.frame and not text.strip():
                    return []
                if not form.ends_at(bare):
                    return form.read(bare) or []
                ended += form.close()
        if not _DIGIT.search(text) and not _NONFINITE.search(text) and not text.lstrip().startswith(self._marks):
            ended += self._close()
            header = lines.wall(text[:MAX_LINE_CHARACTERS])[1]
            for form in self._formats:
                if form.without_numbers:
                    ended += form.read(header) or []
            return ended
        return ended + (self._by_patterns(text) or self._by_rank(text))

    def _by_patterns(self, text: str) -> list[Reading]:
        reading = read_pattern(text, self.patterns) if self.patterns else None
        if reading is None:
            return []
        reading.wall = lines.wall(text[:MAX_LINE_CHARACTERS])[0]
        return [reading]

    def _by_rank(self, text: str) -> list[Reading]:
        """Read a line, if it is one of the rank that is followed."""
        rank, text = lines.rank(text)
        bare, stripped = lines.bare_rank(text) if rank is None else (None, text)
        if bare is None:
            return self._of_rank(rank, self._parse(text))
        readings = self._parse(stripped)
        if self._bare_ranks or any(reading.step is not None for reading in readings):
            self._bare_ranks = True
            return self._of_rank(bare, readings)
        return self._parse(text)

    def _of_rank(self, rank: int | None, readings: list[Reading]) -> list[Reading]:
        if rank is None or not readings:
            return readings
        if (self.lead is None or rank < self.lead) and any(reading.step is not None for reading in readings):
            self.lead = rank
        if rank != (self.lead if self.lead is not None else 0):
            self.foreign += 1
            return []
        for reading in readings:
            reading.rank = rank
        return readings

    def _parse(self, text: str) -> list[Reading]:
        wall, text = lines.wall(text)
        ended: list[Reading] = []
        readings: list[Reading] | None = None
        beginning = text[:MAX_LINE_CHARACTERS]
        for form in self._stateful:
            if form.open and not form.exclusive and form.ends_at(beginning):
                ended += form.close()
        for form in self._formats:
            readings = form.read(text if form.whole_line else beginning)
            if readings is not None:
                break
        for reading in readings or []:
            reading.wall = reading.wall if wall is None else wall
        ended += readings or []
        for reading in ended:
            field_mapping.resolve_ambiguous_times(reading)
        return [reading for reading in ended if reading.useful]


def _without_prefixes(text: str) -> str:
    return lines.wall(lines.rank(text[:MAX_LINE_CHARACTERS])[1])[1]


# A finished log: its readings, its events, and a summary of both.

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

    def _line(self, line: Line) -> list[Reading]:
        summary = self.summary
        summary.lines = max(summary.lines, line.number if line.text or line.frame else line.number - 1)
        foreign = self._reader.foreign
        readings = self._reader.read(line)
        was_read = bool(readings) or self._reader.occupied or self._reader.foreign > foreign
        if was_read and line.number > self._counted:
            self._counted = line.number
            summary.read += 1
        elif not was_read and _DIGIT.search(line.text):
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
