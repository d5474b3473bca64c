"""Read journals as they grow: whole lines only, each event once and in order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from io import FileIO
from operator import attrgetter
from pathlib import Path
from typing import Any

from monitor.sources.decode import Unknown
from monitor.sources.sparse_files import FREED, end_of_freed, file_size
from monitor.sources.step_lines import without_first
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event, Hello, Steps
from trainhooks.protocol.limits import MAX_LINE

JOURNAL_CHUNK = 1 << 21  # bytes read at once: some five thousand steps
SKIPPED = 1 << 18  # bytes read at once of a line that is too long


class JournalTail:
    """Read a file's whole lines from `offset` on. A partial last line is read once it is complete.

    Attributes:
        offset: bytes returned so far, line ends included.
        has_gap: whether lines were skipped that had been freed; the reader resets it.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.has_gap = False

    def size(self) -> int:
        """Return the current size of the file in bytes; 0 where it cannot be read."""
        return file_size(self.path)

    def read(self) -> list[bytes]:
        """Return the next whole lines, about a chunk of them; empty when there are none yet."""
        return lines_of(self.read_block())

    def read_block(self) -> bytes:
        """Return the next whole lines in one piece, line ends included, about a chunk of them."""
        try:
            with open(self.path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                there = os.fstat(source.fileno()).st_size - self.offset
                if there > 0:
                    there -= self._skip_long_line(source)
                if there <= 0:
                    return b""
                source.seek(self.offset)
                # Not always a whole chunk: Python allocates the requested size, several times per second.
                data = source.read(min(JOURNAL_CHUNK, there))
                if data.startswith(FREED):
                    self.has_gap = True
                    self.offset = end_of_freed(source.fileno(), self.offset)
                    source.seek(self.offset)
                    data = source.read(JOURNAL_CHUNK)
        except OSError:
            return b""
        freed = data.find(FREED)
        end = data.rfind(b"\n", 0, freed) + 1 if freed > 0 else 0
        end = end or data.rfind(b"\n") + 1
        if end == 0:
            # Longer than any valid line: its start is returned, and counts as one unreadable line.
            if len(data) <= MAX_LINE:
                return b""
            end = len(data)
        self.offset += end
        return data[:end]

    def _skip_long_line(self, source: FileIO) -> int:
        """Skip the rest of a line that was too long, as far as it is written. Return the number of bytes skipped."""
        before = self.offset
        if before == 0:
            return 0
        source.seek(self.offset - 1)
        last = source.read(1)
        while last and last not in (b"\n", FREED) and (data := source.read(SKIPPED)):
            end = data.find(b"\n") + 1
            self.offset += end or len(data)
            last = b"\n" if end else data[-1:]
        return self.offset - before


def lines_of(block: bytes) -> list[bytes]:
    """Return the lines of a block; its last one may lack its end."""
    return block.removesuffix(b"\n").split(b"\n") if block else []


# Sequencing: events of many producers in order, each exactly once. Pure.

_SEQ, _PRODUCER = attrgetter("seq"), attrgetter("producer")
MAX_HELD = 50_000  # events that wait for an earlier one; beyond that the gap counts as lost
MAX_PRODUCERS = 20_000  # a thousand ranks, each restarted twenty times; events of more count as missing


@dataclass(slots=True)
class _Sequence:
    expected: int = 0
    held: dict[int, Event] = field(default_factory=dict)
    newer: set[int] = field(default_factory=set)  # numbers of events of unknown, newer kinds

    def take_newer(self, seq: int) -> None:
        if len(self.newer) >= MAX_HELD:
            self.newer = {seq for seq in self.newer if seq >= self.expected}
        if len(self.newer) < MAX_HELD:
            self.newer.add(seq)

    def missing_before(self, seq: int) -> int:
        """Return how many of the numbers from the expected one up to this one are missing."""
        return seq - self.expected - sum(self.expected <= newer < seq for newer in self.newer)

    def pass_on(self, event: Event) -> list[Event]:
        """Return what of an event was not returned yet, and expect the next one."""
        if event.next_seq <= self.expected:
            return []
        if event.seq < self.expected and isinstance(event, Steps):
            event = without_first(event, self.expected - event.seq)
        self.expected = event.next_seq
        return [event]


@dataclass(slots=True)
class JournalPosition:
    """How far a journal was read, in its producer's numbers, and how many lines since then were unreadable."""

    producer: str | None = None
    expected: int = 0  # the number of the next event
    unreadable: int = 0  # lines since the last event
    newer: set[int] = field(default_factory=set)  # numbers since then of lines of a newer kind

    def count_unreadable(self, events: list[Any], all_read: bool) -> int:
        """Return the number of unreadable lines (None), without those that leave a gap in the numbers.

        A gap is counted by the sequencer, so each lost event counts once.
        """
        if all_read and events and not self.unreadable and type(events[-1]) is not Unknown:
            self._move_to(events[-1])
            return 0
        count = 0
        for event in events:
            if event is None:
                count += 1
                self.unreadable += 1
            elif type(event) is Unknown:
                if event.producer == (self.producer or event.producer) and len(self.newer) < MAX_HELD:
                    self.newer.add(event.seq)
            elif hasattr(event, "seq"):
                if self.unreadable and event.producer == (self.producer or event.producer):
                    count -= min(self.unreadable, self._gap_before(event.seq))
                self._move_to(event)
        return count

    def _gap_before(self, seq: int) -> int:
        """Return how many numbers are missing before this one. Lines of a newer kind are not missing."""
        return max(0, seq - self.expected - sum(self.expected <= newer < seq for newer in self.newer))

    def _move_to(self, event: Event) -> None:
        self.producer, self.expected, self.unreadable = event.producer, event.next_seq, 0
        self.newer.clear()


@dataclass(slots=True)
class Sequencer:
    """Take events in any order, with repeats and gaps; return each once, in `seq` order for each producer.

    Events of a newer kind are not returned. Their numbers are no gaps, and do not shadow a known event's number.
    """

    missing: int = 0  # events given up as lost
    _producers: dict[str, _Sequence] = field(default_factory=dict)
    _held: int = 0  # events that wait, of all producers

    def push(self, event: Event) -> list[Event]:
        """Take an event. Return the events that are due now: none, it alone, or it and those that waited for it."""
        sequence = self._producers.get(event.producer)
        if sequence is None:
            if len(self._producers) >= MAX_PRODUCERS:
                self.missing += 1
                return []
            sequence = self._producers[event.producer] = _Sequence()
        seq = event.seq
        if type(event) is Unknown:
            sequence.take_newer(seq)
            return self._due(sequence)
        if seq <= sequence.expected < event.next_seq:  # a part of several steps may have been returned
            out = sequence.pass_on(event)
            return [*out, *self._due(sequence, moved=True)] if sequence.held or sequence.newer else out
        if seq < sequence.expected:
            if seq not in sequence.newer:
                return []
            sequence.newer.discard(seq)
            return [event]
        if sequence.expected == 0 and isinstance(event, Hello):  # a writer that counts from 1
            sequence.expected = seq + 1
            return [event, *self._due(sequence)]
        held = sequence.held.get(seq)
        if held is None or held.next_seq < event.next_seq:
            self._held += held is None
            sequence.held[seq] = event
        return self._skip_missing(sequence) if self._held > MAX_HELD else self._due(sequence)

    def push_all(self, events: list[Any]) -> list[Any]:
        """Take many events. Usually all are of one producer and in order."""
        if events:
            producer = events[0].producer
            sequence = self._producers.get(producer)
            if sequence is not None and not sequence.held:
                kinds = set(map(type, events))
                end = sequence.expected + len(events)
                following = [sequence.expected, *[event.next_seq for event in events]] if Steps in kinds else []
                if (
                    list(map(_SEQ, events)) == (following[:-1] or list(range(sequence.expected, end)))
                    and set(map(_PRODUCER, events)) == {producer}
                    and Unknown not in kinds
                ):
                    sequence.expected = following[-1] if following else end
                    return events
        return [due for event in events for due in self.push(event)]

    def jump_to(self, event: Any) -> None:
        """Wait for no event of this one's producer before it: they are gone, and count as missing."""
        sequence = self._producers.setdefault(event.producer, _Sequence())
        if event.seq > sequence.expected:
            gone = [seq for seq in sequence.held if seq < event.seq]
            for seq in gone:
                del sequence.held[seq]
            self._held -= len(gone)
            self.missing += event.seq - sequence.expected
            sequence.expected = event.seq

    def is_behind(self, event: Event) -> bool:
        """Return whether this event, or one after it, was already returned."""
        sequence = self._producers.get(event.producer)
        return sequence is not None and event.seq < sequence.expected

    def knows(self, producer: str) -> bool:
        return producer in self._producers

    def expected(self) -> dict[str, int]:
        """Return the number of the next event of each producer, for `go_on`."""
        return {producer: sequence.expected for producer, sequence in self._producers.items()}

    def resume(self, expected: dict[str, int], missing: int) -> None:
        """Continue from where an earlier reader stopped."""
        self._producers = {producer: _Sequence(number) for producer, number in expected.items()}
        self.missing, self._held = missing, 0

    def release_waiting(self) -> list[Event]:
        """Return what still waits, in order. Call it when the journals were read to their ends, so gaps are real."""
        return [event for sequence in self._producers.values() for event in self._skip_missing(sequence)]

    def _due(self, sequence: _Sequence, moved: bool = False) -> list[Event]:
        out: list[Event] = []
        while (event := sequence.held.pop(sequence.expected, None)) is not None or sequence.expected in sequence.newer:
            if event is None:
                sequence.expected += 1
            else:
                self._held -= 1
                out += sequence.pass_on(event)
        return [*out, *self._overlapping(sequence)] if sequence.held and (out or moved) else out

    def _overlapping(self, sequence: _Sequence) -> list[Event]:
        """Return what waits although some of its steps were returned, in other lines of several."""
        out: list[Event] = []
        for seq in sorted(seq for seq in sequence.held if seq < sequence.expected):
            self._held -= 1
            out += sequence.pass_on(sequence.held.pop(seq))
        return [*out, *self._due(sequence)] if out else out

    def _skip_missing(self, sequence: _Sequence) -> list[Event]:
        """Return what waits in order; what it waited for is missing."""
        out: list[Event] = []
        for seq in sorted(sequence.held):
            self.missing += max(0, sequence.missing_before(seq))
            out += sequence.pass_on(sequence.held[seq])
        self._held -= len(sequence.held)
        sequence.held.clear()
        return out
