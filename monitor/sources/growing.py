"""A file that another process appends to, read as it grows. It is held open: removed by its owner, it is read on.

Whoever opens `/dev/stdout` for writing empties the file behind it and writes on from its begin. The next line may be as
long as the one before, so that the file's length tells nothing: what was read last is compared, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

CHUNK = 128 * 1024  # bytes read at once
COMPARED = 4096  # bytes before the place that was reached, which must still be what was read there
SKEW = 10.0  # seconds; a file's time that is older than that comes from another machine's clock


class Place:
    """How far a file has been read."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._before = b""  # what was read last, up to `offset`

    def peek(self, handle: int, most: int) -> bytes:
        """What has come, up to so many bytes; it comes again until it is taken.

        Raises:
            OSError: the disk fails.
        """
        if os.fstat(handle).st_size < self.offset:
            self.offset, self._before = 0, b""
        known = self._before
        data = os.pread(handle, len(known) + most, self.offset - len(known))
        if not data.startswith(known):  # written over: the lines that are others now are new
            other = next((at for at, byte in enumerate(known) if data[at : at + 1] != bytes([byte])), len(known))
            kept = known.rfind(b"\n", 0, other) + 1
            self.offset -= len(known) - kept
            self._before = known[:kept]
        return data[len(self._before) :][:most]

    def take(self, data: bytes) -> None:
        """Go on behind `data`, the begin of what was seen."""
        self.offset += len(data)
        self._before = (self._before + data[-COMPARED:])[-COMPARED:]


class Growing(Place):
    """The file, and how far it has been read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """
        Raises:
            OSError: it is not there, or cannot be read.
        """
        super().__init__(offset)
        self.name = path.name
        self.handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, most: int = CHUNK) -> tuple[bytes, float]:
        """What has come, up to so many bytes, and how long ago the last of it was written, in seconds.

        A look may be late; the file's own time is not.
        """
        try:
            found = os.fstat(self.handle)
            data = self.peek(self.handle, most)
        except OSError:
            return b"", 0.0
        self.take(data)
        age = time.time() - found.st_mtime if data and self.offset >= found.st_size else 0.0
        return data, age if 0 <= age < SKEW else 0.0

    def size(self) -> int:
        return os.fstat(self.handle).st_size

    def to_end(self) -> None:
        """Pass over what is there."""
        self.offset = self.size()

    def close(self) -> None:
        os.close(self.handle)
