"""Read the events of a run directory: from its journals, with sockets as a signal that they have grown.

A producer writes its journal, and then the same lines are published. So after a frame the journal is read; only lines
that it lacks (a full disk) are taken from the frame.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor.sources import host_clocks, streams
from monitor.sources.decode import UNKNOWN_KIND, decode, decode_numbered
from monitor.sources.journal_reader import JournalPosition, JournalTail, Sequencer, lines_of
from monitor.sources.sockets import Subscriber
from monitor.sources.step_lines import decode_lines, single_events, step_blocks
from monitor.step_blocks import StepBlock
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event
from trainhooks.protocol.limits import MAX_LINE

RESCAN = 1.0  # seconds between two searches for new journals
POLL = 0.1  # seconds between two checks of the sizes of journals: what they wrote may be published by nobody

_RANK = re.compile(r"rank-(\d+)-.+\.jsonl")


@dataclass(slots=True)
class Position:
    """How far a run has been read: enough to continue from there."""

    offsets: dict[str, int]  # journal -> bytes read
    expected: dict[str, int]  # producer -> number of its next event
    unreadable: int
    missing: int


class RunDirectory:
    """Read the events of a run. `poll` returns new events, each once and in its producer's order."""

    def __init__(self, path: Path, chosen: int | None = None, rank: int | None = None) -> None:
        """
        Args:
            chosen: the place of the training to read, where several ran under the command; None: the leading one.
            rank: whose journals are read first, with those that are of no rank; None: the lowest.
        """
        self.path = path
        self._rank = rank
        self.streams: list[streams.Stream] = []  # empty while there is no more than one training process
        self.shown = 0  # the place of the one that is read
        self.is_stale = False  # whether another training leads now: what was read has to be dropped
        self._chosen = chosen
        self._journals: list[Path] = []  # at the last search
        self._strangers: set[str] = set()  # producers that published, and whose journals decide whether they count
        self.has_gap = False  # whether older events of what was read are freed: they count as missing
        self.unreadable = 0  # lines that leave no gap in their producer's numbers; a gap counts as missing
        self._sequencer = Sequencer()
        self._tails: dict[Path, JournalTail] = {}
        self._places: dict[Path, JournalPosition] = {}
        self._sizes: dict[Path, int] = {}  # of the journals at the last `wait`
        self._scanned = -RESCAN
        self._shifts: dict[str, float] = {}  # journal -> what its host's clock is behind that of the first one
        self._caught_up = False
        self._turn = 0  # which journal is read
        self._subscriber = Subscriber(path)

    @property
    def missing(self) -> int:
        """Return the number of lines that were unreadable or never arrived."""
        return self.unreadable + self._sequencer.missing

    def poll(self) -> list[Event]:
        """Return some new events, from the journals in turn; empty when all are read to their ends."""
        return list(single_events(self._due()))

    def poll_blocks(self) -> list[Event | StepBlock]:
        """Return some new events as `poll` does, with consecutive steps as blocks."""
        return step_blocks(self._due())

    def _due(self) -> list[Any]:
        self._scan()
        return self._read_journals() or self._beyond_journals()

    def _beyond_journals(self) -> list[Any]:
        """Return the events that are due once the journals are read to their ends."""
        out: list[Any] = []
        frames = self._subscriber.receive()
        for batch in frames:
            self._take_frame(batch, out)
        # The lines of a frame, and of lost frames, were in the journal before.
        if out or (frames and (out := self._read_journals())):
            return out
        self._caught_up = True
        return self._sequencer.release_waiting()

    def _read_journals(self) -> list[Any]:
        """Read journals in turn until some event is due; empty when all are read to their ends.

        Each is read to its end before the next; the next call goes on there, and does not ask the others again.
        """
        tails = list(self._tails.items())
        for turn in range(len(tails)):
            path, tail = tails[(self._turn + turn) % len(tails)]
            while block := tail.read_block():
                known = self._known(path, decode_lines(lines_of(block), decode_numbered))
                if shift := self._shifts.get(path.name):
                    host_clocks.move(known, shift)
                if tail.has_gap and known:
                    tail.has_gap, self.has_gap = False, True
                    self._sequencer.jump_to(known[0])
                if due := self._sequencer.push_all(known):
                    self._turn = (self._turn + turn) % len(tails)
                    return due
        return []

    def _known(self, path: Path, decoded: list[Any]) -> list[Any]:
        """Return the events that this version knows; count unreadable lines."""
        known = [event for event in decoded if event is not None and event is not UNKNOWN_KIND]
        self.unreadable += self._places.setdefault(path, JournalPosition()).count_unreadable(
            decoded, len(known) == len(decoded)
        )
        return known

    def _scan(self) -> None:
        now = time.monotonic()
        if now - self._scanned < RESCAN:
            return
        self._scanned = now
        self._shifts = host_clocks.shifts(self.path)
        journals = [path for path in rundir.journals(self.path) if streams.is_known(path)]
        wanted = self._of_one_training(journals)
        strangers = set(journals).difference(wanted)  # journals that are gone, with their run, are none
        self.is_stale = self.is_stale or not strangers.isdisjoint(self._tails)
        new = [path for path in wanted if path not in self._tails]
        for path in sorted(new, key=lambda path: (self._is_late(path), *_by_rank(path))):
            self._tails[path] = JournalTail(path)
        self._subscriber.connect()

    def _is_late(self, journal: Path) -> bool:
        """Return whether a journal is read after all of the chosen rank's and the recorder's: it is another rank's."""
        named = _RANK.fullmatch(journal.name)
        return self._rank is not None and named is not None and int(named[1]) != self._rank

    def _of_one_training(self, journals: list[Path]) -> list[Path]:
        """Return the journals of the training that is shown, with the recorder's."""
        if not streams.has_several(journals):
            return journals
        if journals != self._journals:
            self._journals, self.streams = journals, streams.find_streams(journals)
        if len(self.streams) > 1:
            self.shown = streams.leading_place(self.streams) if self._chosen is None else self._chosen
        return streams.journals_of(journals, self.streams, self.shown)

    def find_journals(self) -> None:
        """Search for journals now."""
        self.rescan()
        self._scan()
        self.rescan()  # the first poll searches itself

    def rescan(self) -> None:
        """Search for new journals in the next poll, regardless of when that was last done."""
        self._scanned = -RESCAN

    def _take(self, line: bytes, out: list[Any]) -> None:
        event = decode_numbered(line)
        if event is None:
            self.unreadable += 1
        elif event is not UNKNOWN_KIND:
            assert isinstance(event, Event)
            out += self._sequencer.push(event)

    def _take_frame(self, batch: bytes, out: list[Any]) -> None:
        """Return published lines that are not in the journal; usually none."""
        lines = [line for line in batch.split(b"\n") if line]
        newest = decode(lines[-1]) if lines else None
        if isinstance(newest, Event) and (self._sequencer.is_behind(newest) or self._is_strange(newest.producer)):
            return
        for line in lines:
            self._take(line, out)

    def _is_strange(self, producer: str) -> bool:
        """Return whether a frame is of a training that is not shown, or of one whose journal was not looked at yet.

        All trainings of a run publish at one socket. A journal that is empty, on a full disk, decides nothing.
        """
        if self._sequencer.knows(producer):
            return False
        if len(self.streams) > 1:  # the output's reader, too: all trainings wrote to it
            return True
        ending = f"-{producer}.jsonl"
        if producer not in self._strangers and any(
            path.name.endswith(ending) and streams.is_known(path) for path in rundir.journals(self.path)
        ):
            self._strangers.add(producer)
            self.rescan()
        return producer in self._strangers

    def position(self) -> Position:
        offsets = {tail.path.name: tail.offset for tail in self._tails.values()}
        return Position(offsets, self._sequencer.expected(), self.unreadable, self._sequencer.missing)

    def move_to(self, position: Position) -> None:
        """Continue from the position of an earlier reader."""
        self._scan()
        for tail in self._tails.values():
            tail.offset = position.offsets.get(tail.path.name, 0)
        self._sequencer.resume(position.expected, position.missing)
        self.unreadable = position.unreadable

    def bytes_read(self) -> int:
        return sum(tail.offset for tail in self._tails.values())

    def share_read(self) -> float | None:
        """Return the share of the history that was read; None once the end was reached."""
        if self._caught_up:
            return None
        size = sum(tail.size() for tail in self._tails.values())
        return self.bytes_read() / size if size else 0.0

    def wait(self, seconds: float) -> bool:
        """Sleep until a producer publishes or a journal grows, at most `seconds`. Return whether there is news."""
        until = time.monotonic() + seconds
        while not self._grown():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._subscriber.wait(min(left, POLL)):
                return True
        return True

    def _grown(self) -> bool:
        """Return whether a journal has grown since the last check and has unread bytes."""
        grown = False
        for path, tail in self._tails.items():
            size = tail.size()
            grown = grown or size not in (tail.offset, self._sizes.get(path))
            self._sizes[path] = size
        return grown

    def close(self) -> None:
        self._subscriber.close()


def ranks_of(run: Path) -> list[int]:
    """Return the ranks that have written a journal, rising."""
    named = (_RANK.fullmatch(path.name) for path in rundir.journals(run))
    return sorted({int(match[1]) for match in named if match is not None})


def _by_rank(path: Path) -> tuple[bool, int, float, str]:
    """Sort journals by rank, the processes of a rank by start: a restart follows the first."""
    named = _RANK.fullmatch(path.name)
    return named is None, int(named.group(1)) if named else 0, _begin(path), path.name


def _begin(path: Path) -> float:
    """Return the time of a journal's first line; 0 where it cannot be read yet."""
    try:
        with open(path, "rb", opener=rundir.open_at_once) as source:
            first = decode(source.readline(MAX_LINE + 1).rstrip(b"\n"))
    except OSError:
        return 0.0
    return first.t if isinstance(first, Event) else 0.0
