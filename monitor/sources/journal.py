"""A journal, read as it grows. It holds whole lines only, and knows to the byte how far it has come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from trainhooks import rundir
from trainhooks.events import MAX_LINE

CHUNK = 1 << 23  # bytes read at once: some twenty thousand steps
BATCH = 1 << 18  # bytes decoded at once: a few times this, as objects, is what a core has memory of its own for
BLOCK = 1 << 21  # bytes read into columns at once, which take less


class JournalTail:
    """A file's whole lines from `offset` on. A last line without its end stays unread until it is whole."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset  # bytes handed out so far, line ends included

    def size(self) -> int:
        """Bytes in the file now; 0 where it cannot be read."""
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def read(self) -> list[bytes]:
        """The next whole lines, about a chunk of them; empty when there are none yet."""
        return lines_of(self.block())

    def block(self) -> bytes:
        """The same in one piece, line ends included."""
        data, end = self.stretch(CHUNK)
        return data[:end]

    def stretch(self, size: int, spare: int = 0) -> tuple[bytes, int]:
        """The next bytes, and where the last whole line among them ends.

        Args:
            spare: bytes that may be looked at behind that end: so many are there, if the file has them.
        """
        try:
            with open(self.path, "rb", buffering=0, opener=rundir.at_once) as source:
                there = os.fstat(source.fileno()).st_size - self.offset
                if there > 0:
                    there -= self._leave_long_line(source)
                if there <= 0:
                    return b"", 0
                source.seek(self.offset)
                # Asked for a chunk, Python takes memory for all of it: several times a second, that wears the heap out.
                data = source.read(min(size, there))
        except OSError:
            return b"", 0
        end = data.rfind(b"\n", 0, len(data) - spare) + 1 if there > size else 0
        end = end or data.rfind(b"\n") + 1
        if end == 0:
            # No writer of ours makes a line this long: its beginning stands for it, as a line that cannot be read.
            if len(data) <= MAX_LINE:
                return b"", 0
            end = len(data)
        self.offset += end
        return data, end

    def _leave_long_line(self, source: FileIO) -> int:
        """Pass over what is left of a line whose beginning was handed out, as far as it is there; returns the bytes."""
        before = self.offset
        if before == 0:
            return 0
        source.seek(self.offset - 1)
        last = source.read(1)
        while last and last != b"\n" and (data := source.read(BLOCK)):
            end = data.find(b"\n") + 1
            self.offset += end or len(data)
            last = b"\n" if end else data[-1:]
        return self.offset - before


def lines_of(block: bytes) -> list[bytes]:
    """The lines of a block; its last one may lack its end."""
    return block.removesuffix(b"\n").split(b"\n") if block else []


def batches(block: bytes) -> Iterator[bytes]:
    """A block cut into pieces of some hundred whole lines: what is made of one stays in the processor's own memory."""
    at = 0
    while at < len(block):
        end = block.find(b"\n", at + BATCH) + 1 or len(block)
        yield block[at:end]
        at = end
