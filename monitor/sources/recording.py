"""Journals as a recording: every event of every producer, in the order of time.

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
from trainhooks.events import MAX_INTEGER, MAX_LINE, Event

NOT_RANKS = ("recorder", "console")


class _Line(msgspec.Struct):
    """Of a line what the index needs."""

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


_line = msgspec.json.Decoder(_Line)
_hello = msgspec.json.Decoder(_Hello)


@dataclass(slots=True)
class _Producer:
    """The lines of one producer: where each lies, its number and its time."""

    source: str = "unknown"
    rank: int = 0
    host: str | None = None
    wall_offset: float | None = None  # Unix time minus its own clock
    files: array[int] = field(default_factory=lambda: array("H"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    steps: bytearray = field(default_factory=bytearray)  # 1 for a step of the main loop

    def in_order(self) -> tuple[list[int], int]:
        """The places of the lines by their numbers, each number once; and how many numbers are missing."""
        places = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
        once = [at for n, at in enumerate(places) if not n or self.seqs[places[n - 1]] != self.seqs[at]]
        spread = self.seqs[once[-1]] - self.seqs[once[0]] + 1 if once else 0
        return once, spread - len(once)


class Recording:
    """The events of some journals by their number in time, from 0 on."""

    def __init__(self, files: list[Path]) -> None:
        """
        Raises:
            OSError: a file cannot be read.
        """
        self.missing = 0  # lines that cannot be read, or are not there
        self.simulated = False  # whether a GPU in it is no real one
        self._paths = files
        self._open: dict[int, BinaryIO] = {}
        producers: dict[str, _Producer] = {}
        for number, path in enumerate(files):
            self._scan(number, path, producers)
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
                try:
                    found = _line.decode(line)
                    fits = line.endswith(b"\n") and 0 <= found.seq <= MAX_INTEGER and -1e12 < found.t < 1e12
                except (ValueError, RecursionError):  # msgspec's own errors and bad UTF-8 are ValueErrors
                    fits = False
                if fits:
                    self._note(found, line, number, offset, producers)
                else:
                    self.missing += 1
                offset += len(line)

    def _note(self, found: _Line, line: bytes, file: int, offset: int, producers: dict[str, _Producer]) -> None:
        producer = producers.setdefault(found.producer, _Producer())
        if found.kind == "hello":
            try:
                told = _hello.decode(line)
            except (ValueError, RecursionError):
                self.missing += 1
                return
            producer.source, producer.rank, producer.host = told.source, told.rank, told.host
            producer.wall_offset = told.wall - found.t if told.wall else None
        self.simulated |= found.simulated
        producer.files.append(file)
        producer.offsets.append(offset)
        producer.seqs.append(found.seq)
        producer.times.append(found.t)
        producer.steps.append(found.kind == "step" and found.thread is None)

    def _merge(self, producers: list[_Producer]) -> None:
        """Sort by time. Events of a producer stay in its own order; a rank's processes follow each other."""
        producers.sort(key=lambda each: (each.source in NOT_RANKS, each.rank, each.times[0]))
        lead = next((each for each in producers if any(each.steps)), None)
        first = lead or (producers[0] if producers else None)
        files, offsets, times, steps = array("H"), array("q"), array("d"), bytearray()
        for each in producers:
            leads = lead is not None and (each.source in NOT_RANKS, each.rank) == (lead.source in NOT_RANKS, lead.rank)
            places, missing = each.in_order()
            self.missing += missing
            latest, ahead = float("-inf"), _ahead(each, first)
            for at in places:
                latest = max(latest, each.times[at] + ahead)
                files.append(each.files[at])
                offsets.append(each.offsets[at])
                times.append(latest)
                steps.append(each.steps[at] and leads)
        order = sorted(range(len(times)), key=times.__getitem__)
        self._files = array("H", (files[at] for at in order))
        self._offsets = array("q", (offsets[at] for at in order))
        self.times = array("d", (times[at] for at in order))  # on the clock of the lead's host
        self.steps = array("q", (n for n, at in enumerate(order) if steps[at]))  # the numbers of the lead's steps

    def before(self, moment: float) -> int:
        """How many events lie at or before a moment."""
        return bisect_right(self.times, moment)

    def events(self, begin: int, end: int) -> Iterator[Event]:
        """The events from one number up to another, read anew. What is no event passes in silence."""
        for at in range(begin, min(end, len(self))):
            source = self._file(self._files[at])
            offset = self._offsets[at]
            if source.tell() != offset:
                source.seek(offset)
            event = decode(source.readline(MAX_LINE + 1).rstrip(b"\n"))
            if isinstance(event, Event):
                yield event

    def _file(self, number: int) -> BinaryIO:
        found = self._open.get(number)
        if found is None:
            found = self._open[number] = open(self._paths[number], "rb")  # noqa: SIM115
        return found

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self._open.clear()


def _ahead(each: _Producer, first: _Producer | None) -> float:
    """Seconds to add to a producer's times: another machine's clock counts from another moment."""
    if first is None or each.host in (None, first.host) or None in (each.wall_offset, first.wall_offset, first.host):
        return 0.0
    assert each.wall_offset is not None and first.wall_offset is not None
    return each.wall_offset - first.wall_offset
