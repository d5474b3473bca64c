"""When the training's output was written, and by which stream: marks beside the console file.

A mark tells of the bytes since the mark before: when the first of them was seen, where they end, and their stream.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path

from trainhooks.protocol import rundir

NAME = "console.marks"  # in a run's directory
MARK = struct.Struct("<dQB")  # monotonic time, end in the console file, stream
EITHER, STDOUT, STDERR = 0, 1, 2  # streams; EITHER: it is not known which of them wrote what
FIRST_SECONDS = 0.25  # that a mark spans at most, once there are many; before, each look is a mark
MARKS_UNTIL_COARSER = 1 << 15  # marks after which they span twice as long: two weeks of output take 4 MB
LOOK_SECONDS = 0.2  # a writer looks twice as often, and may be late
MAX_MARKS = 1 << 19  # that are read: more than a writer leaves


def span(number: int) -> float:
    """Return the seconds that the mark with this number spans at most."""
    doubled = number // MARKS_UNTIL_COARSER - 1
    return FIRST_SECONDS * 2.0**doubled if doubled >= 0 else 0.0


class ConsoleMarks:
    """The marks of one run. Where there are none, all is unknown."""

    def __init__(self, console: Path) -> None:
        """
        Args:
            console: the console file.
        """
        self._path = console.with_name(NAME)
        self._times: list[float] = []
        self._ends: list[int] = []
        self._streams: list[int] = []
        self._first = 0  # number of the first of them in the file

    def refresh(self) -> None:
        """Read what marks have come or changed."""
        known = self._first + len(self._times)
        begin = max(0, known - 1)  # the last one grows until the next begins
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                if os.fstat(source.fileno()).st_size < known * MARK.size:  # another file
                    begin, self._first = 0, 0
                data = os.pread(source.fileno(), MAX_MARKS * MARK.size, begin * MARK.size)
        except OSError:
            return
        for column in (self._times, self._ends, self._streams):
            del column[max(0, begin - self._first) :]
        whole = data[: len(data) // MARK.size * MARK.size]
        for number, (time, end, stream) in enumerate(MARK.iter_unpack(whole), begin):
            if self._ends and not (end >= self._ends[-1] and time >= self._times[-1]):  # the output was truncated
                self._times, self._ends, self._streams, self._first = [], [], [], number
            self._times.append(time)
            self._ends.append(end)
            self._streams.append(stream)

    def times_of(self, byte: int) -> tuple[float, float] | None:
        """Return the times between which a byte was written, in seconds of the run's clock; None where unknown."""
        place = bisect_right(self._ends, byte)
        if place >= len(self._times):
            return None
        seen = self._times[place]
        is_first = place == 0 or byte == self._ends[place - 1]
        latest = seen if is_first else seen + span(self._first + place)
        if place + 1 < len(self._times):
            latest = min(latest, self._times[place + 1])
        return seen - LOOK_SECONDS, latest

    def place_of(self, time: float) -> int | None:
        """Return a byte from which on lies all output since a time, or little more; None where no time is known."""
        if not self._times:
            return None
        place = bisect_left(self._times, time)
        return self._ends[place - 1] if place else 0

    def is_error(self, byte: int) -> bool:
        """Return whether a byte was written to stderr, as far as that is known."""
        place = bisect_right(self._ends, byte)
        return place < len(self._streams) and self._streams[place] == STDERR
