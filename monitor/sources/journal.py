"""A journal, read as it grows. It holds whole lines only, and knows to the byte how far it has come."""

from __future__ import annotations

import os
from pathlib import Path

from trainhooks.events import MAX_LINE

CHUNK = 1 << 22  # bytes read at once: some ten thousand steps


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
        try:
            with open(self.path, "rb") as source:
                source.seek(self.offset)
                data = source.read(CHUNK)
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0:
            # No writer of ours makes a line this long: it is passed over in pieces, as lines that cannot be read.
            if len(data) <= MAX_LINE:
                return []
            end = len(data)
        self.offset += end
        return data[:end].split(b"\n")[:-1] if data[end - 1 : end] == b"\n" else [data[:end]]
