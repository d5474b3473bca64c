"""The newest lines of the training's own output, fit for a screen. A flood costs a bounded look at its end."""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path

from monitor.sources.growing import Place
from trainhooks import rundir
from trainhooks.events import MAX_TEXT, clean

LINES = 400  # kept for the screen
REACH = 256 * 1024  # bytes looked at in one poll; what lies before them is skipped, and said
PARTIAL = 64 * 1024  # bytes of an unfinished line that are kept
INDENT = 80

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and their kin: titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]"  # other short ones
    r"|\x1b"
)


def readable(line: bytes) -> str:
    """One line as a terminal would leave it: the last frame of a progress bar, without escapes and controls."""
    frames = [frame for frame in line[-4 * PARTIAL :].split(b"\r") if frame.strip()]
    if not frames:
        return ""
    text = _ESCAPES.sub("", frames[-1][: 4 * MAX_TEXT].decode("utf-8", "replace")).expandtabs(8)
    indent = min(len(text) - len(text.lstrip(" ")), INDENT)
    return " " * indent + clean(text)


class Lines:
    """Bytes in, the newest lines out. The last one may still be growing; it counts as seen."""

    def __init__(self) -> None:
        self._whole: deque[str] = deque(maxlen=LINES)
        self._partial = b""
        self._finished = 0

    def feed(self, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-PARTIAL:]
        self._finished += len(whole)
        self._whole.extend(readable(line) for line in whole[-LINES:])

    def skip(self, count: int) -> None:
        """Bytes were left out here: drop the half of a line before them, and say so in their place."""
        self._partial = b""
        self._finished += 1
        self._whole.append(f"… {count / 2**20:,.1f} MiB of output not shown …")

    def newest(self) -> tuple[tuple[str, ...], int]:
        """Up to `LINES` lines, and how many were seen in all."""
        growing = readable(self._partial)
        if not growing:
            return tuple(self._whole), self._finished
        return (*self._whole, growing)[-LINES:], self._finished + 1


class Console:
    """Follows the file that holds the training's output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = Place()
        self._lines = Lines()

    def poll(self) -> tuple[tuple[str, ...], int]:
        """The newest lines, and how many were seen in all."""
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.at_once) as source:
                self._advance(source.fileno())
        except OSError:
            pass  # no output yet, or none any more: what was seen stays
        return self._lines.newest()

    def _advance(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        behind = size - self._place.offset
        if behind > REACH:
            self._lines.skip(behind - REACH)
            self._place = Place(size - REACH)
        while data := self._place.peek(handle, REACH):  # emptied, it is read from its begin; what was seen stays
            self._place.take(data)
            self._lines.feed(data)
            if self._place.offset >= size:
                return
