"""What a log makes: its events, and a few ways to look at them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monitor.console.clock import Arrival
from monitor.console.reader import Reader
from monitor.console.reading import Reading
from monitor.console.survey import Summary, Survey
from monitor.console.terminal import Terminal
from monitor.console.tracker import Tracker
from trainhooks.events import Event, Facts, Metrics, Note, Number, Span, Step

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class Told:
    """The events of a log."""

    events: list[Event]
    summary: Summary | None = None

    @property
    def steps(self) -> list[Step]:
        return sorted((event for event in self.events if isinstance(event, Step)), key=lambda step: step.index)

    @property
    def spans(self) -> dict[str, float]:
        return {event.name: event.duration for event in self.events if isinstance(event, Span)}

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    @property
    def total(self) -> int | None:
        return next((e.total_steps for e in reversed(self.events) if isinstance(e, Facts) and e.total_steps), None)

    @property
    def start_step(self) -> int:
        return next(
            (e.start_step for e in reversed(self.events) if isinstance(e, Facts) and e.start_step is not None), 0
        )

    def metric(self, name: str) -> list[Number]:
        """Every value of a metric, in the order of the steps; without a step in the order of the lines."""
        rows: list[tuple[int, Number]] = []
        for event in self.events:
            if isinstance(event, Step) and name in event.metrics:
                rows.append((event.index, event.metrics[name]))
            elif isinstance(event, Metrics) and name in event.values:
                rows.append((event.step or 0, event.values[name]))
        return [value for _, value in sorted(rows, key=lambda row: row[0])]


def imported(data: bytes) -> Told:
    """A finished log, as `trainmon import` reads it."""
    survey = Survey()
    events = survey.feed(data)[1] + survey.finish()[1]
    return Told(events, survey.summary)


def fixture(name: str) -> Told:
    return imported((FIXTURES / f"{name}.log").read_bytes())


def readings(data: bytes) -> list[Reading]:
    terminal, reader = Terminal(), Reader()
    lines = terminal.feed(data) + terminal.finish()
    return [reading for line in lines for reading in reader.read(line)] + reader.finish()


def one(text: str) -> Reading:
    """The only reading of one line."""
    (reading,) = readings(text.encode())
    return reading


class Live:
    """A living log: text that arrives at given moments."""

    def __init__(self) -> None:
        self.clock = Arrival()
        self.terminal, self.reader, self.tracker = Terminal(), Reader(), Tracker(self.clock)
        self.events: list[Event] = []

    def at(self, now: float, text: str) -> None:
        self.clock.now = now
        for line in self.terminal.feed(text.encode()):
            for reading in self.reader.read(line):
                self.tracker.take(reading)
        self.events += self.tracker.drain(now)

    def end(self) -> Told:
        for line in self.terminal.finish():
            for reading in self.reader.read(line):
                self.tracker.take(reading)
        for reading in self.reader.finish():
            self.tracker.take(reading)
        self.events += self.tracker.drain(self.clock.now, last=True)
        return Told(self.events)
