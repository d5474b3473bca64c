"""Read the newest lines of the training's output for a screen. Of a flood only a bounded part at its end is read."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections import deque
from itertools import accumulate
from pathlib import Path

from monitor.sources.tail_file import FilePosition
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_TEXT, clean

MAX_LINES = 400  # kept for the screen
MAX_POLL = 256 * 1024  # bytes read in one poll; earlier ones are skipped, with a line that says so
MAX_PARTIAL = 64 * 1024  # bytes of an unfinished line that are kept
MAX_INDENT = 80

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor movements
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and similar: titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]"  # other short ones
    r"|\x1b"
)


def displayed_text(line: bytes) -> str:
    """Return a line as a terminal would show it: the last frame of a progress bar, without escape sequences."""
    frames = [frame for frame in line[-4 * MAX_PARTIAL :].split(b"\r") if frame.strip()]
    if not frames:
        return ""
    text = _ESCAPES.sub("", frames[-1][: 4 * MAX_TEXT].decode("utf-8", "replace")).expandtabs(8)
    indent = min(len(text) - len(text.lstrip(" ")), MAX_INDENT)
    return " " * indent + clean(text)


class Lines:
    """Split bytes into lines and keep the newest. An unfinished last line counts as seen."""

    def __init__(self) -> None:
        self._whole: deque[tuple[str, int]] = deque(maxlen=MAX_LINES)  # each with its begin
        self._partial = b""
        self._begin = 0  # of the unfinished line
        self._finished = 0

    def feed(self, data: bytes, end: int = 0) -> None:
        """Add bytes.

        Args:
            end: the byte of the file at which they end.
        """
        *whole, rest = (self._partial + data).split(b"\n")
        begin = self._begin if self._partial else end - len(data)
        ends = end - len(rest)
        lengths = [len(line) + 1 for line in whole]
        starts = list(accumulate(lengths, initial=ends - sum(lengths)))[:-1]
        starts[:1] = [begin] if whole else []
        self._begin = ends if whole else begin
        self._partial = rest[-MAX_PARTIAL:]
        self._finished += len(whole)
        self._whole.extend(
            (displayed_text(line), start) for line, start in zip(whole[-MAX_LINES:], starts[-MAX_LINES:], strict=True)
        )

    def skip(self, count: int, end: int = 0) -> None:
        """Record that bytes were skipped, up to one: drop the partial line before them, and add a line that says so."""
        self._partial = b""
        self._finished += 1
        self._whole.append((f"… {count / 2**20:,.1f} MiB of output not shown …", max(0, end - 1)))

    def newest(self) -> tuple[tuple[str, ...], int]:
        """Return up to `LINES` lines, and the number of all lines seen."""
        growing = displayed_text(self._partial)
        lines = tuple(text for text, _ in self._whole)
        if not growing:
            return lines, self._finished
        return (*lines, growing)[-MAX_LINES:], self._finished + 1

    def starts(self) -> tuple[int, ...]:
        """Return the byte at which each of the newest lines begins."""
        starts = tuple(start for _, start in self._whole)
        return (*starts, self._begin)[-MAX_LINES:] if displayed_text(self._partial) else starts


class Console:
    """Follow the file with the training's output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = FilePosition()
        self._lines = Lines()

    def poll(self) -> tuple[tuple[str, ...], int]:
        """Return the newest lines, and the number of all lines seen."""
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                self._advance(source.fileno())
        except OSError:
            pass  # no output yet, or removed: keep the lines seen
        return self._lines.newest()

    def starts(self) -> tuple[int, ...]:
        """Return the byte of the file at which each of the newest lines begins."""
        return self._lines.starts()

    def _advance(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        behind = size - self._place.offset
        if behind > MAX_POLL:
            self._lines.skip(behind - MAX_POLL, size - MAX_POLL)
            self._place = FilePosition(size - MAX_POLL)
        while data := self._place.peek(handle, MAX_POLL):  # of a truncated file from its start; lines seen are kept
            self._place.advance(data)
            self._lines.feed(data, self._place.offset)
            if self._place.offset >= size:
                return


# Arrival times of output lines, as far as they were observed. Pure.

MAX_POLLS = MAX_LINES  # polls that saw new lines; older lines are no longer on the screen


class LineTimestamps:
    """Record when lines were first seen. For lines present at the first poll that is unknown."""

    def __init__(self) -> None:
        self._seen: list[int] = []  # total number of lines, at every poll that saw new ones
        self._times: list[float] = []

    def times_of(self, lines: int, seen: int, now: float) -> tuple[float, ...]:
        """Return when each of the newest `lines` of `seen` was first seen; nan where unknown."""
        if self._seen and seen < self._seen[-1]:  # the file was truncated
            self._seen, self._times = [], []
        if not self._seen or seen > self._seen[-1]:
            self._times.append(now if self._seen or not seen else math.nan)
            self._seen.append(seen)
            if len(self._seen) > MAX_POLLS:
                del self._seen[0], self._times[0]
        return tuple(self._times[bisect_left(self._seen, number)] for number in range(seen - lines + 1, seen + 1))
