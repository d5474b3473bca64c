"""A file that another process appends to, read as it grows. It is held open, so it is readable after its removal.

A program that opens `/dev/stdout` for writing truncates the file and writes from its start. The next line may be as
long as the one before, so the length alone does not show it: the bytes read last are compared, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from monitor.sources.sparse_files import FREED, next_data

READ_BYTES = 128 * 1024  # bytes read at once
COMPARED_BYTES = 4096  # bytes before the offset that must be unchanged
MAX_CLOCK_SKEW = 10.0  # seconds; an older modification time comes from another machine's clock


class FilePosition:
    """How far a file has been read."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.skipped = 0  # bytes that were freed before they were read
        self._before = b""  # what was read last, up to `offset`

    def peek(self, handle: int, most: int) -> bytes:
        """Return new bytes, `most` at most; they are returned again until `take`. A freed part is skipped.

        Raises:
            OSError: the disk fails.
        """
        if os.fstat(handle).st_size < self.offset:
            self.offset, self._before = 0, b""
        known = self._before
        begin = self.offset - len(known)
        data = os.pread(handle, len(known) + most, begin)
        if data.startswith(FREED) and (kept := next_data(handle, begin)) > begin:
            self.skipped += max(0, kept - self.offset)
            self.offset, self._before, known = max(self.offset, kept), b"", b""
            data = os.pread(handle, most, self.offset)
        if not data.startswith(known):  # overwritten: lines that differ are new
            first_change = next((at for at, byte in enumerate(known) if data[at : at + 1] != bytes([byte])), len(known))
            kept = known.rfind(b"\n", 0, first_change) + 1
            self.offset -= len(known) - kept
            self._before = known[:kept]
        return data[len(self._before) :][:most]

    def advance(self, data: bytes) -> None:
        """Advance past `data`, the start of the bytes that `peek` returned."""
        self.offset += len(data)
        self._before = (self._before + data[-COMPARED_BYTES:])[-COMPARED_BYTES:]


class TailedFile(FilePosition):
    """An open file, and how far it has been read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """
        Raises:
            OSError: it does not exist or cannot be read.
        """
        super().__init__(offset)
        self.name = path.name
        self.handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, most: int = READ_BYTES) -> tuple[bytes, float]:
        """Return new bytes, `most` at most, and how many seconds ago the last of them was written.

        The age comes from the file's modification time, so a late poll does not change it.
        """
        try:
            status = os.fstat(self.handle)
            data = self.peek(self.handle, most)
        except OSError:
            return b"", 0.0
        self.advance(data)
        age = time.time() - status.st_mtime if data and self.offset >= status.st_size else 0.0
        return data, age if 0 <= age < MAX_CLOCK_SKEW else 0.0

    def size(self) -> int:
        return os.fstat(self.handle).st_size

    def skip_to_end(self) -> None:
        """Skip the present content."""
        self.offset = self.size()

    def close(self) -> None:
        os.close(self.handle)
