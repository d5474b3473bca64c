"""Read the training's output around any place of its file, and find text in it. Only a bounded part at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from monitor.sources.console_lines import MAX_LINES, MAX_PARTIAL, displayed_text
from trainhooks.protocol import rundir

BLOCK = 1024**2  # bytes read at once
MAX_WINDOW = 4 * BLOCK  # bytes of lines that are read for one window
MAX_SEARCHED = 32 * BLOCK  # bytes that one search reads: a fraction of a second


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines that follow each other."""

    lines: tuple[str, ...] = ()  # as displayed
    starts: tuple[int, ...] = (0,)  # the byte at which each begins, and at last where the lines end


class ConsoleHistory:
    """The output of a training. Whatever cannot be read is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        """Return the bytes of the file; 0 where there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def before(self, end: int) -> Window:
        """Return the lines that are finished before a byte; fewer than `MAX_LINES` only near the start."""
        data, begin = b"", end
        while begin > 0 and data.count(b"\n") <= MAX_LINES and len(data) < MAX_WINDOW:
            size = min(begin, BLOCK)
            read = self._read(begin - size, size)
            if len(read) < size:
                break  # truncated, or gone
            data, begin = read + data, begin - size
        *lines, unfinished = data.split(b"\n")
        end -= len(unfinished)
        if begin > 0:
            lines = lines[1:]  # its beginning was not read
        lines = lines[-MAX_LINES:]
        return _window(lines, end - sum(len(line) + 1 for line in lines))

    def after(self, begin: int) -> Window:
        """Return the lines from a byte on at which one begins, without an unfinished last one."""
        lines = self._read(begin, MAX_WINDOW).split(b"\n")[:-1]
        return _window(lines[:MAX_LINES], begin)

    def find(self, text: str, at: int, forward: bool) -> int | None:
        """Return where the first line with `text` begins from a byte on, or the last one before it.

        Args:
            text: upper and lower case count alike.
            at: a byte at which a line begins.

        Returns:
            None: there is none within `MAX_SEARCHED` bytes.
        """
        wanted = text.lower()
        word = max(wanted.split(), key=len, default=wanted)  # colors may lie between words
        for begin in _blocks(at, self.size(), forward):
            # What begins in this block and ends behind it is read with it.
            data = self._read(begin, BLOCK + MAX_PARTIAL)
            hits = _hits(data.lower(), word.encode(), BLOCK if forward else min(BLOCK, at - begin))
            for hit in hits if forward else reversed(hits):
                first, last = data.rfind(b"\n", 0, hit) + 1, data.find(b"\n", hit)
                if last < 0 or wanted not in displayed_text(data[first:last]).lower():
                    continue
                start = begin + first if first else self._line_begin(begin + hit)
                if (start >= at) is forward:
                    return start
        return None

    def _line_begin(self, at: int) -> int:
        begin = max(0, at - MAX_PARTIAL)
        return begin + self._read(begin, at - begin).rfind(b"\n") + 1

    def _read(self, begin: int, size: int) -> bytes:
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                return os.pread(source.fileno(), size, begin)
        except OSError:
            return b""


def _blocks(at: int, end: int, forward: bool) -> Iterator[int]:
    """Yield where the blocks begin that a search reads."""
    for step in range(MAX_SEARCHED // BLOCK):
        begin = at + step * BLOCK if forward else at - (step + 1) * BLOCK
        if begin >= end or begin <= -BLOCK:
            return
        yield max(0, begin)


def _hits(data: bytes, wanted: bytes, most: int) -> list[int]:
    """Return where `wanted` begins in the first `most` bytes; one place a line is enough."""
    hits, at = [], data.find(wanted)
    while 0 <= at < most:
        hits.append(at)
        line_end = data.find(b"\n", at)
        at = data.find(wanted, line_end) if line_end >= 0 else -1
    return hits


def _window(lines: Sequence[bytes], begin: int) -> Window:
    starts = accumulate((len(line) + 1 for line in lines), initial=begin)
    return Window(tuple(map(displayed_text, lines)), tuple(starts))
