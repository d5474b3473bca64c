"""A file that another process appends to, read as it grows. It is held open: removed by its owner, it is read on."""

from __future__ import annotations

import os
import time
from pathlib import Path

CHUNK = 128 * 1024  # bytes read at once
SKEW = 10.0  # seconds; a file's time that is older than that comes from another machine's clock


class Growing:
    """The file, and how far it has been read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """
        Raises:
            OSError: it is not there, or cannot be read.
        """
        self.name = path.name
        self.offset = offset
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, most: int = CHUNK) -> tuple[bytes, float]:
        """What has come, up to so many bytes, and how long ago the last of it was written, in seconds.

        A look may be late; the file's own time is not.
        """
        try:
            found = os.fstat(self._handle)
            if found.st_size < self.offset:  # emptied by somebody: what is new counts
                self.offset = 0
            data = os.pread(self._handle, min(most, found.st_size - self.offset), self.offset)
        except OSError:
            return b"", 0.0
        self.offset += len(data)
        age = time.time() - found.st_mtime if data and self.offset >= found.st_size else 0.0
        return data, age if 0 <= age < SKEW else 0.0

    def to_end(self) -> None:
        """Pass over what is there."""
        self.offset = os.fstat(self._handle).st_size

    def close(self) -> None:
        os.close(self._handle)
