"""Logs parsed whole or as they grow, with access to what their events say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monitor.console.line_times import ArrivalClock
from monitor.console.lines import Terminal
from monitor.console.log_parser import LogParser, LogSummary
from monitor.console.reader import Reader
from monitor.console.reading import Reading
from monitor.console.tracker import Tracker
from trainhooks.protocol.events import Event, Facts, Metrics, Note, Span, Step
from trainhooks.protocol.limits import Number

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class ParsedLog:
    """The events of a log."""

    events: list[Event]
    summary: LogSummary | None = None

    @property
    def steps(self) -> list[Step]:
        return sorted((event for event in self.events if isinstance(event, Step)), key=lambda step: step.index)

    @property
    def spans(self) -> dict[str, float]:
        return {event.name: event.duration for event in self.events if isinstance(event, Span)}

    @property
    def notes(self) -> list[Note]:
        return [event for event in self.events if isinstance(event, Note)]

    @property
    def note_codes(self) -> list[str | None]:
        return [note.code for note in self.notes]

    @property
    def total(self) -> int | None:
        return next((e.total_steps for e in reversed(self.events) if isinstance(e, Facts) and e.total_steps), None)

    @property
    def start_step(self) -> int:
        return next(
            (e.start_step for e in reversed(self.events) if isinstance(e, Facts) and e.start_step is not None), 0
        )

    def metric(self, name: str) -> list[Number]:
        """Return every value of a metric in the order of the steps; without a step in the order of the lines."""
        rows: list[tuple[int, Number]] = []
        for event in self.events:
            if isinstance(event, Step) and name in event.metrics:
                rows.append((event.index, event.metrics[name]))
            elif isinstance(event, Metrics) and name in event.values:
                rows.append((event.step or 0, event.values[name]))
        return [value for _, value in sorted(rows, key=lambda row: row[0])]


def parse(data: bytes) -> ParsedLog:
    """Parse a finished log, as `trainmon import` does."""
    parser = LogParser()
    events = parser.feed(data)[1] + parser.finish()[1]
    return ParsedLog(events, parser.summary)


def fixture(name: str) -> ParsedLog:
    """Parse `fixtures/NAME.log`."""
    return parse((FIXTURES / f"{name}.log").read_bytes())


def readings(data: bytes) -> list[Reading]:
    terminal, reader = Terminal(), Reader()
    lines = terminal.feed(data) + terminal.finish()
    return [reading for line in lines for reading in reader.read(line)] + reader.finish()


def one(text: str) -> Reading:
    """Return the only reading of one line."""
    (reading,) = readings(text.encode())
    return reading


class Live:
    """A live log: text that arrives at given moments."""

    def __init__(self) -> None:
        self.clock = ArrivalClock()
        self.terminal, self.reader, self.tracker = Terminal(), Reader(), Tracker(self.clock)
        self.events: list[Event] = []

    def at(self, now: float, text: str) -> None:
        self.clock.now = now
        for line in self.terminal.feed(text.encode()):
            for reading in self.reader.read(line):
                self.tracker.add_reading(reading)
        self.events += self.tracker.drain(now)

    def end(self) -> ParsedLog:
        for line in self.terminal.finish():
            for reading in self.reader.read(line):
                self.tracker.add_reading(reading)
        for reading in self.reader.finish():
            self.tracker.add_reading(reading)
        self.events += self.tracker.drain(self.clock.now, last=True)
        return ParsedLog(self.events)
