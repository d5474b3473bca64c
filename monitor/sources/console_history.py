"""Read the training's output around any place of its file, and find text in it. Only a bounded part at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path

from monitor.sources.console_lines import MAX_LINES, MAX_PARTIAL, displayed_text
from trainhooks.protocol import rundir

BLOCK = 1024**2  # bytes read at once
MAX_WINDOW = 4 * BLOCK  # bytes of lines that are read for one window
MAX_SEARCHED = 32 * BLOCK  # bytes that one search reads: a fraction of a second


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines that follow each other, or all lines with a text in a part of the output."""

    lines: tuple[str, ...] = ()  # as displayed
    starts: tuple[int, ...] = (0,)  # the byte at which each begins, and at last where what was looked at ends
    begin: int = 0  # the byte at which that begins

    def joined(self, after: Window) -> Window:
        """Return these lines with those of a window that begins where this one ends."""
        return Window(self.lines + after.lines, self.starts[:-1] + after.starts, self.begin)


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
        return next((start for start, _ in self._matching(text, at, forward)), None)

    def matching_before(self, text: str, end: int) -> Window:
        """Return the newest finished lines with `text` before a byte; of at most `MAX_SEARCHED` bytes."""
        end = self._line_begin(end)
        found = list(islice(self._matching(text, end, forward=False), MAX_LINES))[::-1]
        begin = found[0][0] if len(found) == MAX_LINES else max(0, end - MAX_SEARCHED)
        return Window(tuple(line for _, line in found), (*(start for start, _ in found), end), begin)

    def matching_after(self, text: str, begin: int) -> Window:
        """Return the first finished lines with `text` from a byte on at which one begins; likewise."""
        found = list(islice(self._matching(text, begin, forward=True), MAX_LINES + 1))
        end = self._line_begin(min(self.size(), begin + MAX_SEARCHED))
        if len(found) > MAX_LINES:
            end = found.pop()[0]
        return Window(tuple(line for _, line in found), (*(start for start, _ in found), max(begin, end)), begin)

    def _matching(self, text: str, at: int, forward: bool) -> Iterator[tuple[int, str]]:
        """Yield the lines with `text` from a byte on or before it, the nearest first: begin, and as displayed."""
        wanted = text.lower()
        word = max(wanted.split(), key=len, default=wanted)  # colors may lie between words
        known = -1
        for begin, size in _blocks(at, self.size(), forward):
            # What begins in this block and ends behind it is read with it.
            data = self._read(begin, BLOCK + MAX_PARTIAL)
            hits = _hits(data.lower(), word.encode(), size)
            for hit in hits if forward else reversed(hits):
                first, last = data.rfind(b"\n", 0, hit) + 1, data.find(b"\n", hit)
                if last < 0:
                    continue
                start = begin + first if first else self._line_begin(begin + hit)
                line = data[first:last] if first else self._read(start, begin + last - start)
                shown = displayed_text(line)
                if wanted in shown.lower() and (start >= at) is forward and start != known:
                    known = start
                    yield start, shown

    def _line_begin(self, at: int) -> int:
        begin = max(0, at - MAX_PARTIAL)
        return begin + self._read(begin, at - begin).rfind(b"\n") + 1

    def _read(self, begin: int, size: int) -> bytes:
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                return os.pread(source.fileno(), size, begin)
        except OSError:
            return b""


def _blocks(at: int, end: int, forward: bool) -> Iterator[tuple[int, int]]:
    """Yield where the blocks begin that a search reads, and their bytes."""
    for step in range(MAX_SEARCHED // BLOCK):
        begin = at + step * BLOCK if forward else at - (step + 1) * BLOCK
        if begin >= end or begin <= -BLOCK:
            return
        yield max(0, begin), BLOCK + min(0, begin)


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
    return Window(tuple(map(displayed_text, lines)), tuple(starts), begin)
