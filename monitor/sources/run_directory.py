"""A run directory as a source of events: its journals hold the truth, its sockets ring the bell.

A producer writes its journal first and publishes the same lines second. So a frame tells that the journal has grown,
and the journal is read; only lines that a journal lacks (a full disk) are taken from the frame itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor import columns
from monitor.slab import Slab
from monitor.sources.alike import Alike
from monitor.sources.decode import UNKNOWN, decode, numbered
from monitor.sources.joined import joined
from monitor.sources.journal import BLOCK, CHUNK, JournalTail, batches
from monitor.sources.sequence import Place, Sequencer
from monitor.sources.shapes import Decoded, Row, Shape, slabs
from trainhooks import rundir
from trainhooks.events import MAX_LINE, Event

LONG = 1 << 24  # bytes, some forty thousand steps: with fewer, loading numpy takes longer than it saves
SPARE = 1 << 10  # bytes behind a block's end that are read with it: what looks at columns looks beyond
MUCH = 1 << 25  # bytes of a long history folded at once: what each fold costs besides its steps is paid seldom
RESCAN = 1.0  # seconds between two looks for new journals
POLL = 0.1  # seconds between two looks at journals whose producer has no socket

_PRODUCER = re.compile(r"rank-(\d+)-(.+)\.jsonl")


@dataclass(slots=True)
class Position:
    """How far a run has been read: what it takes to go on from there."""

    offsets: dict[str, int]  # journal -> bytes read
    expected: dict[str, int]  # producer -> number of its next event
    unreadable: int
    missing: int


class RunDirectory:
    """The events of a run. `poll` gives what is new, each event once and in its producer's order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable = 0  # lines that leave no hole in their producer's numbers: such a hole counts as missing
        self._sequencer = Sequencer()
        self._tails: dict[Path, JournalTail] = {}
        self._readers: dict[Path, tuple[Shape, Alike]] = {}
        self._places: dict[Path, Place] = {}
        self._scanned = -RESCAN
        self._caught_up = False
        self._long = False
        self._subscriber = Subscriber()

    @property
    def missing(self) -> int:
        """Lines that could not be read, or never came."""
        return self.unreadable + self._sequencer.missing

    def poll(self) -> list[Event]:
        """Some new events, from the journals in turn; empty when all are read to their ends."""
        return [each.step() if isinstance(each, Row) else each for each in self._due(list)]

    def poll_slabs(self) -> list[Event | Slab]:
        """The same, with plain steps in a row put together."""
        return joined(self._due(slabs), self._is_long())

    def _due(self, form: Callable[[list[Any]], list[Any]]) -> Iterator[Any]:
        """What is due, each batch put into the form that is asked for: one after the other, so that few are held."""
        self._scan()
        some = False
        for event in self._read_journals(form):
            some = True
            yield event
        if not some:
            yield from form(self._beyond_journals())

    def _beyond_journals(self) -> list[Any]:
        """What is due when the journals are read to their ends."""
        out: list[Any] = []
        frames = self._subscriber.take()
        for batch in frames:
            self._take_frame(batch, out)
        # What a frame tells of stood in the journal before it, and so does what a gap in the frames leaves out.
        if out or (frames and (out := list(self._read_journals(list)))):
            return out
        self._caught_up = True
        return self._sequencer.settle()

    def _read_journals(self, form: Callable[[list[Any]], list[Any]]) -> Iterator[Any]:
        """Read journals in turn until some event is due; none when all are read to their ends and none is."""
        wide = form is slabs and self._is_long()
        size = BLOCK if wide else CHUNK
        some = False
        for path, tail in self._tails.items():
            end = tail.offset + (MUCH if wide else CHUNK)
            while (not some or tail.offset + size <= end) and (read := tail.stretch(size, SPARE))[1]:
                for found in self._formed(path, *read, form, wide):
                    some = some or bool(found)
                    yield from found
            if some:
                break

    def _formed(
        self, path: Path, block: bytes, end: int, form: Callable[[list[Any]], list[Any]], wide: bool
    ) -> Iterator[list[Any]]:
        """What is due of a journal's whole lines, batch by batch; `wide`: in columns at once, where that goes."""
        shape, alike = self._readers.setdefault(path, _readers())
        found = alike.read(block, end, decode) if wide else None
        numbers = found.numbers() if found is not None else None
        if found is not None and numbers is not None and self._sequencer.pass_on(found.producer, numbers):
            self._places[path] = Place(found.producer, numbers.stop - 1)
            yield found.slabs()
            return
        for batch in batches(block[:end]):
            yield form(self._sequencer.push_all(self._known(path, shape.read(batch, numbered))))

    def _known(self, path: Path, found: list[Any]) -> list[Any]:
        """The events that this version knows; lines that could not be read are counted."""
        known = [event for event in found if event is not None and event is not UNKNOWN]
        self.unreadable += self._places.setdefault(path, Place()).go_over(found, len(known) == len(found))
        if len(known) == len(found):
            return found
        return Decoded(known, found.again) if isinstance(found, Decoded) else known

    def _is_long(self) -> bool:
        """Whether a long history is being read, and there is what it takes to read it in columns."""
        self._scan()
        if not self._caught_up and not self._long:
            waiting = sum(tail.size() - tail.offset for tail in self._tails.values())
            self._long = waiting >= LONG and columns.available()
        return self._long and not self._caught_up

    def _scan(self) -> None:
        now = time.monotonic()
        if now - self._scanned < RESCAN:
            return
        self._scanned = now
        new = [path for path in rundir.journals(self.path) if path not in self._tails]
        for path in sorted(new, key=_by_rank):
            self._tails[path] = JournalTail(path)
            named = _PRODUCER.fullmatch(path.name)
            if named is not None:
                self._subscriber.connect(named.group(2))

    def look_again(self) -> None:
        """Look for new journals with the next poll, however short ago that was done."""
        self._scanned = -RESCAN

    def _take(self, line: bytes, out: list[Any]) -> None:
        event = numbered(line)
        if event is None:
            self.unreadable += 1
        elif event is not UNKNOWN:
            assert isinstance(event, Event)
            out += self._sequencer.push(event)

    def _take_frame(self, batch: bytes, out: list[Any]) -> None:
        """Lines that were published and are not in the journal; usually none."""
        lines = [line for line in batch.split(b"\n") if line]
        newest = decode(lines[-1]) if lines else None
        if isinstance(newest, Event) and newest.seq <= self._sequencer.last(newest.producer):
            return
        for line in lines:
            self._take(line, out)

    def position(self) -> Position:
        offsets = {tail.path.name: tail.offset for tail in self._tails.values()}
        return Position(offsets, self._sequencer.expected(), self.unreadable, self._sequencer.missing)

    def move_to(self, position: Position) -> None:
        """Go on from a position that an earlier reader came to."""
        self._scan()
        for tail in self._tails.values():
            tail.offset = position.offsets.get(tail.path.name, 0)
        self._sequencer.go_on(position.expected, position.missing)
        self.unreadable = position.unreadable

    def bytes_read(self) -> int:
        return sum(tail.offset for tail in self._tails.values())

    def share_read(self) -> float | None:
        """The share of the history that is read; None once the end was reached."""
        if self._caught_up:
            return None
        size = sum(tail.size() for tail in self._tails.values())
        return self.bytes_read() / size if size else 0.0

    def wait(self, seconds: float) -> None:
        """Sleep until something is published, or for so long; never longer than a journal may be left unread."""
        self._subscriber.wait(min(seconds, POLL) if not self._subscriber.connected else seconds)

    def close(self) -> None:
        self._subscriber.close()


def _readers() -> tuple[Shape, Alike]:
    shape = Shape()
    return shape, Alike(shape)


def _by_rank(path: Path) -> tuple[bool, int, float, str]:
    """Rank by rank, the processes of a rank in the order in which they came: a restart follows the first."""
    named = _PRODUCER.fullmatch(path.name)
    return named is None, int(named.group(1)) if named else 0, _begin(path), path.name


def _begin(path: Path) -> float:
    """The time of a journal's first line; 0 where it cannot be read yet."""
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            first = decode(source.readline(MAX_LINE + 1).rstrip(b"\n"))
    except OSError:
        return 0.0
    return first.t if isinstance(first, Event) else 0.0


class Subscriber:
    """The bell: a SUB socket connected to each producer's PUB. Its context is made when it is first needed."""

    def __init__(self) -> None:
        self.connected = 0
        self._context: Any = None
        self._socket: Any = None

    def connect(self, producer: str) -> None:
        """Listen to a producer, if its socket is there. One that ended has none."""
        try:
            path = rundir.socket_path(producer)
        except OSError:
            return
        if not path.is_socket():
            return
        import zmq

        if self._socket is None:
            self._context = zmq.Context()
            self._socket = self._context.socket(zmq.SUB)
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        with contextlib.suppress(zmq.ZMQError):
            self._socket.connect(f"ipc://{path}")
            self.connected += 1

    def take(self) -> list[bytes]:
        """The frames that have come, without waiting."""
        if self._socket is None:
            return []
        import zmq

        out: list[bytes] = []
        with contextlib.suppress(zmq.Again):
            while len(out) < 1000:
                out.append(self._socket.recv(zmq.NOBLOCK))
        return out

    def wait(self, seconds: float) -> None:
        if self._socket is None:
            time.sleep(seconds)
        else:
            self._socket.poll(int(seconds * 1000))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._context.term()
