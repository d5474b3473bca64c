"""Events of many producers put in order, each exactly once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainhooks.events import Event, Hello

MAX_HELD = 50_000  # events that wait for an earlier one; past it the gap is taken as lost
MAX_PRODUCERS = 20_000  # a thousand ranks, each begun anew twenty times; events of more are counted as missing


@dataclass(slots=True)
class _Line:
    expected: int = 0
    held: dict[int, Event] = field(default_factory=dict)


@dataclass(slots=True)
class Place:
    """How far a journal has come in its producer's numbers, and how many lines since then could not be read."""

    producer: str | None = None
    seq: int = -1
    unread: int = 0

    def go_over(self, found: list[Any], all_read: bool) -> int:
        """The lines among these that could not be read (None), less those that the next number tells to be missing:
        what was lost is counted once.
        """
        if all_read and found and not self.unread:
            self.producer, self.seq = found[-1].producer, found[-1].seq
            return 0
        count = 0
        for event in found:
            if event is None:
                count += 1
                self.unread += 1
            elif hasattr(event, "seq"):
                if self.unread and event.producer == (self.producer or event.producer):
                    count -= min(self.unread, max(0, event.seq - self.seq - 1))
                self.producer, self.seq, self.unread = event.producer, event.seq, 0
        return count


@dataclass(slots=True)
class Sequencer:
    """Takes events in any order, with repeats and gaps; gives each once, rising by `seq` for each producer."""

    missing: int = 0  # events given up as lost
    _lines: dict[str, _Line] = field(default_factory=dict)
    _held: int = 0  # events that wait, of all producers

    def push(self, event: Event) -> list[Event]:
        """The events that are due now that `event` is here: none, it alone, or it and those that waited for it."""
        line = self._lines.get(event.producer)
        if line is None:
            if len(self._lines) >= MAX_PRODUCERS:
                self.missing += 1
                return []
            line = self._lines[event.producer] = _Line()
        seq = event.seq
        if seq == line.expected:
            line.expected += 1
            return [event, *self._due(line)] if line.held else [event]
        if seq < line.expected:
            return []
        if line.expected == 0 and isinstance(event, Hello):  # a writer that counts from 1
            line.expected = seq + 1
            return [event, *self._due(line)]
        self._held += seq not in line.held
        line.held[seq] = event
        return self._give_up(line) if self._held > MAX_HELD else []

    def push_all(self, events: list[Any]) -> list[Any]:
        """The same for many. Usually they are one producer's, each due after the one before."""
        if events:
            producer = events[0].producer
            line = self._lines.get(producer)
            if line is not None and not line.held:
                due = range(line.expected, line.expected + len(events))
                if [event.seq for event in events] == list(due) and {event.producer for event in events} == {producer}:
                    line.expected = due.stop
                    return events
        return [due for event in events for due in self.push(event)]

    def pass_on(self, producer: str, numbers: range | None) -> bool:
        """Whether the events of these numbers are due now; if so, they count as given out."""
        line = self._lines.get(producer)
        if line is None or line.held or numbers is None or line.expected != numbers.start:
            return False
        line.expected = numbers.stop
        return True

    def last(self, producer: str) -> int:
        """The number of the producer's last event given out; -1 for none."""
        line = self._lines.get(producer)
        return line.expected - 1 if line is not None else -1

    def expected(self) -> dict[str, int]:
        """The number of the next event of each producer, to go on from later."""
        return {producer: line.expected for producer, line in self._lines.items()}

    def go_on(self, expected: dict[str, int], missing: int) -> None:
        self._lines = {producer: _Line(number) for producer, number in expected.items()}
        self.missing, self._held = missing, 0

    def settle(self) -> list[Event]:
        """What still waits, in order: called when the journals were read to their ends, so gaps are real."""
        return [event for line in self._lines.values() for event in self._give_up(line)]

    def _due(self, line: _Line) -> list[Event]:
        out = []
        while (event := line.held.pop(line.expected, None)) is not None:
            out.append(event)
            line.expected += 1
        self._held -= len(out)
        return out

    def _give_up(self, line: _Line) -> list[Event]:
        out: list[Event] = []
        while line.held:
            first = min(line.held)
            self.missing += first - line.expected
            line.expected = first
            out += self._due(line)
        return out
