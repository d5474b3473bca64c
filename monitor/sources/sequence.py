"""Events of many producers put in order, each exactly once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from monitor.sources.decode import Unknown
from trainhooks.events import Event, Hello

MAX_HELD = 50_000  # events that wait for an earlier one; past it the gap is taken as lost
MAX_PRODUCERS = 20_000  # a thousand ranks, each begun anew twenty times; events of more are counted as missing


@dataclass(slots=True)
class _Line:
    expected: int = 0
    held: dict[int, Event] = field(default_factory=dict)
    newer: set[int] = field(default_factory=set)  # numbers of events of newer kinds, which may mean anything there

    def take_newer(self, seq: int) -> None:
        if len(self.newer) >= MAX_HELD:
            self.newer = {each for each in self.newer if each >= self.expected}
        if len(self.newer) < MAX_HELD:
            self.newer.add(seq)

    def missing_before(self, last: int) -> int:
        """How many of the numbers up to `last` neither came nor are a newer kind's."""
        newer = sum(self.expected <= each <= last and each not in self.held for each in self.newer)
        return last + 1 - self.expected - len(self.held) - newer


@dataclass(slots=True)
class Place:
    """How far a journal has come in its producer's numbers, and how many lines since then could not be read."""

    producer: str | None = None
    seq: int = -1
    unread: int = 0
    newer: set[int] = field(default_factory=set)  # numbers since then that lines of a newer kind have

    def go_over(self, found: list[Any], all_read: bool) -> int:
        """The lines among these that could not be read (None), less those that the next number tells to be missing:
        what was lost is counted once.
        """
        if all_read and found and not self.unread and type(found[-1]) is not Unknown:
            self._come_to(found[-1])
            return 0
        count = 0
        for event in found:
            if event is None:
                count += 1
                self.unread += 1
            elif type(event) is Unknown:
                if event.producer == (self.producer or event.producer) and len(self.newer) < MAX_HELD:
                    self.newer.add(event.seq)
            elif hasattr(event, "seq"):
                if self.unread and event.producer == (self.producer or event.producer):
                    count -= min(self.unread, self._gap_before(event.seq))
                self._come_to(event)
        return count

    def _gap_before(self, seq: int) -> int:
        """The numbers missing before this one: such as a newer kind's line has are none of the gap."""
        return max(0, seq - self.seq - 1 - sum(self.seq < each < seq for each in self.newer))

    def _come_to(self, event: Event) -> None:
        self.producer, self.seq, self.unread = event.producer, event.seq, 0
        self.newer.clear()


@dataclass(slots=True)
class Sequencer:
    """Takes events in any order, with repeats and gaps; gives each once, rising by `seq` for each producer.

    One of a newer kind is not given. Its number is no gap; neither does it show one, nor take a known event's place.
    """

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
        if type(event) is Unknown:
            line.take_newer(seq)
            return self._due(line)
        if seq == line.expected:
            line.expected += 1
            return [event, *self._due(line)] if line.held or line.newer else [event]
        if seq < line.expected:
            if seq not in line.newer:
                return []
            line.newer.discard(seq)
            return [event]
        if line.expected == 0 and isinstance(event, Hello):  # a writer that counts from 1
            line.expected = seq + 1
            return [event, *self._due(line)]
        self._held += seq not in line.held
        line.held[seq] = event
        return self._give_up(line) if self._held > MAX_HELD else self._due(line)

    def push_all(self, events: list[Any]) -> list[Any]:
        """The same for many. Usually they are one producer's, each due after the one before."""
        if events:
            producer = events[0].producer
            line = self._lines.get(producer)
            if line is not None and not line.held:
                due = range(line.expected, line.expected + len(events))
                if (
                    [event.seq for event in events] == list(due)
                    and {event.producer for event in events} == {producer}
                    and Unknown not in set(map(type, events))
                ):
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
        while (event := line.held.pop(line.expected, None)) is not None or line.expected in line.newer:
            if event is not None:
                out.append(event)
            line.expected += 1
        self._held -= len(out)
        return out

    def _give_up(self, line: _Line) -> list[Event]:
        if not line.held:
            return []
        last = max(line.held)
        self.missing += line.missing_before(last)
        out = [line.held[seq] for seq in sorted(line.held)]
        line.held.clear()
        self._held -= len(out)
        line.expected = last + 1
        return out
