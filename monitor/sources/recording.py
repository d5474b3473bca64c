"""Journals as a recording: every event of every producer, in order of time, each step as an event of its own.

An index of some thirty bytes an event is kept; the events themselves are read again when they are wanted. So one can
move about in a recording of a million steps.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from monitor.sources.decode import decode
from monitor.sources.sparse_files import FREED, end_of_freed
from monitor.sources.step_lines import single_events
from trainhooks.protocol.events import Event
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE

NOT_RANKS = ("recorder", "console")


class _Line(msgspec.Struct):
    """The fields of a line that the index needs."""

    kind: str
    producer: str
    seq: int
    t: float
    thread: str | None = None
    simulated: bool = False


class _Hello(msgspec.Struct):
    source: str = "hooks"
    rank: int = 0
    wall: float = 0.0
    host: str | None = None


class _StepTimes(msgspec.Struct):
    start: list[float]
    duration: list[float]


_line = msgspec.json.Decoder(_Line)
_step_times = msgspec.json.Decoder(_StepTimes)
_hello = msgspec.json.Decoder(_Hello)


@dataclass(slots=True)
class _Producer:
    """The events of one producer: position, number and time of each."""

    source: str = "unknown"
    rank: int = 0
    host: str | None = None
    wall_offset: float | None = None  # Unix time minus its own clock
    files: array[int] = field(default_factory=lambda: array("H"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("H"))  # of a step in its line; 0 in a line of its own
    seqs: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    steps: bytearray = field(default_factory=bytearray)  # 1 for a step of the main loop

    def in_order(self) -> tuple[list[int], int]:
        """Return the positions of the events by number, without repeats, and how many numbers are missing."""
        places = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
        once = [at for n, at in enumerate(places) if not n or self.seqs[places[n - 1]] != self.seqs[at]]
        spread = self.seqs[once[-1]] - self.seqs[once[0]] + 1 if once else 0
        return once, spread - len(once)


class Recording:
    """The events of some journals, indexed from 0 in order of time."""

    def __init__(self, files: list[Path]) -> None:
        """
        Raises:
            OSError: a file cannot be read.
        """
        self.missing = 0  # lines that are unreadable or missing
        self.simulated = False  # whether any GPU is simulated
        self._paths = files
        self._open: dict[int, BinaryIO] = {}
        self._newest: tuple[tuple[int, int], list[Event]] = (-1, -1), []  # the line read last: where, its events
        producers: dict[str, _Producer] = {}
        for number, path in enumerate(files):
            self._scan(number, path, producers)
        self.ranks = sorted({one.rank for one in producers.values() if one.source not in NOT_RANKS and any(one.steps)})
        self._merge(list(producers.values()))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def begin(self) -> float:
        return self.times[0] if self.times else 0.0

    @property
    def end(self) -> float:
        return self.times[-1] if self.times else 0.0

    def _scan(self, number: int, path: Path, producers: dict[str, _Producer]) -> None:
        with open(path, "rb") as source:
            offset = 0
            while line := source.readline(MAX_LINE + 1):
                if line.startswith(FREED):  # its numbers are missing
                    offset = end_of_freed(source.fileno(), offset)
                    source.seek(offset)
                    continue
                try:
                    header = _line.decode(line)
                    fits = line.endswith(b"\n") and 0 <= header.seq <= MAX_INTEGER and -1e12 < header.t < 1e12
                except (ValueError, RecursionError):  # msgspec's own errors and bad UTF-8 are ValueErrors
                    fits = False
                if fits:
                    self._note(header, line, number, offset, producers)
                else:
                    self.missing += 1
                offset += len(line)

    def _note(self, header: _Line, line: bytes, file: int, offset: int, producers: dict[str, _Producer]) -> None:
        producer = producers.setdefault(header.producer, _Producer())
        if header.kind == "hello":
            try:
                hello = _hello.decode(line)
            except (ValueError, RecursionError):
                self.missing += 1
                return
            producer.source, producer.rank, producer.host = hello.source, hello.rank, hello.host
            producer.wall_offset = hello.wall - header.t if hello.wall else None
        self.simulated |= header.simulated
        times = [header.t]
        if header.kind == "steps":
            try:
                steps = _step_times.decode(line)
                times = [start + seconds for start, seconds in zip(steps.start, steps.duration, strict=True)]
            except ValueError:
                times = []
            if not times:
                self.missing += 1
        for place, t in enumerate(times):
            producer.files.append(file)
            producer.offsets.append(offset)
            producer.places.append(place)
            producer.seqs.append(header.seq + place)
            producer.times.append(t)
            producer.steps.append(header.kind in ("step", "steps") and header.thread is None)

    def _merge(self, producers: list[_Producer]) -> None:
        """Sort by time. Events of a producer stay in its own order; a rank's processes follow each other."""
        producers.sort(key=lambda producer: (producer.source in NOT_RANKS, producer.rank, producer.times[0]))
        lead = next((producer for producer in producers if any(producer.steps)), None)
        first = lead or (producers[0] if producers else None)
        files, offsets, in_line, times, steps = array("H"), array("q"), array("H"), array("d"), bytearray()
        for producer in producers:
            leads = lead is not None and (producer.source in NOT_RANKS, producer.rank) == (
                lead.source in NOT_RANKS,
                lead.rank,
            )
            places, missing = producer.in_order()
            self.missing += missing
            latest, ahead = float("-inf"), _clock_difference(producer, first)
            for at in places:
                latest = max(latest, producer.times[at] + ahead)
                files.append(producer.files[at])
                offsets.append(producer.offsets[at])
                in_line.append(producer.places[at])
                times.append(latest)
                steps.append(producer.steps[at] and leads)
        order = sorted(range(len(times)), key=times.__getitem__)
        self._files = array("H", (files[at] for at in order))
        self._offsets = array("q", (offsets[at] for at in order))
        self._places = array("H", (in_line[at] for at in order))
        self.times = array("d", (times[at] for at in order))  # on the clock of the lead's host
        self.steps = array("q", (n for n, at in enumerate(order) if steps[at]))  # the numbers of the lead's steps

    def count_before(self, moment: float) -> int:
        """Return the number of events at or before a moment."""
        return bisect_right(self.times, moment)

    def events(self, begin: int, end: int) -> Iterator[Event]:
        """Yield the events from one number up to another, read from the files. Unreadable lines are skipped."""
        for at in range(begin, min(end, len(self))):
            where = self._files[at], self._offsets[at]
            if self._newest[0] != where:
                self._newest = where, self._read(*where)
            place, read = self._places[at], self._newest[1]
            if place < len(read):
                yield read[place]

    def _read(self, file: int, offset: int) -> list[Event]:
        """Return the events of the line at an offset: its steps, its only event, or none where it is unreadable."""
        source = self._file(file)
        if source.tell() != offset:
            source.seek(offset)
        event = decode(source.readline(MAX_LINE + 1).rstrip(b"\n"))
        return list(single_events([event])) if isinstance(event, Event) else []

    def _file(self, number: int) -> BinaryIO:
        file = self._open.get(number)
        if file is None:
            file = self._open[number] = open(self._paths[number], "rb")  # noqa: SIM115
        return file

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()


def _clock_difference(producer: _Producer, first: _Producer | None) -> float:
    """Return the seconds to add to a producer's times: monotonic clocks of machines differ."""
    if (
        first is None
        or producer.host in (None, first.host)
        or None in (producer.wall_offset, first.wall_offset, first.host)
    ):
        return 0.0
    assert producer.wall_offset is not None and first.wall_offset is not None
    return producer.wall_offset - first.wall_offset
