"""The file and the socket that a producer writes its lines to. The recorder uses them too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Optional

from trainhooks import rundir
from trainhooks.descriptors import Kept
from trainhooks.events import library

MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes kept for a journal that cannot be written now
LINGER_MS = 200  # for the socket's last frame


class Journal:
    """A file of whole lines. What cannot be written waits, and past MAX_UNWRITTEN is dropped and counted.

    Attributes:
        dropped: lines dropped so far.
        waiting_lines: lines refused so far; lost if the end comes before there is room.
    """

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self._path = path
        self._waiting = b""
        self.waiting_lines = 0
        self._file: Optional[Kept] = None
        self._open()

    def _open(self) -> None:
        """Open the file where that is possible, and end an earlier writer's unfinished last line."""
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = Kept(handle, self._path)
            size = os.fstat(self._file.number).st_size
            if size and os.pread(self._file.number, 1, size - 1) != b"\n":
                os.write(self._file.number, b"\n")

    def append(self, batch: bytes, lines: int) -> None:
        """Write whole lines. Never raises: what the disk refuses is tried again with the next batch."""
        self._waiting += batch
        self.waiting_lines += lines
        if self._file is None or not self._file.is_ours():  # the program may have closed it
            self._file = None
            self._open()
        if self._file is not None and self._write(self._file, self._waiting):
            self._waiting, self.waiting_lines = b"", 0
        elif len(self._waiting) > MAX_UNWRITTEN:
            self.dropped += self.waiting_lines
            self._waiting, self.waiting_lines = b"", 0

    def _write(self, file: Kept, data: bytes) -> bool:
        done = 0
        try:
            while done < len(data):  # a disk that fills up takes a part and refuses the rest
                if done and not file.is_ours():
                    return False
                done += os.write(file.number, data[done:] if done else data)
        except OSError:
            if done and file.is_ours():  # no half line may stay, or two lines merge
                with contextlib.suppress(OSError):
                    os.ftruncate(file.number, os.fstat(file.number).st_size - done)
            return False
        return True

    def close(self) -> None:
        self.dropped += self.waiting_lines
        self.waiting_lines = 0
        if self._file is not None:
            self._file.close()
            self._file = None


class Publisher:
    """A PUB socket, where pyzmq is installed. It never blocks: a viewer that lags reads the journal instead."""

    def __init__(self, context: Any, sock: Any, path: Path, zmq: Any) -> None:
        self._context = context
        self._socket = sock
        self._path = path
        self._zmq = zmq

    @classmethod
    def open(cls, producer: str) -> Optional["Publisher"]:
        """Return a bound publisher, or None where there can be none: viewers then follow the journal."""
        zmq = library("zmq")
        if zmq is None:
            return None
        try:
            path = rundir.socket_path(producer)
            context = zmq.Context()
            sock = context.socket(zmq.PUB)
            sock.setsockopt(zmq.LINGER, LINGER_MS)
            sock.bind(f"ipc://{path}")
        except (OSError, zmq.ZMQError):
            return None
        return cls(context, sock, path, zmq)

    def publish(self, batch: bytes) -> None:
        with contextlib.suppress(self._zmq.ZMQError):
            self._socket.send(batch, self._zmq.NOBLOCK)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # when the interpreter ends zmq may be half gone
            self._socket.close()
            self._context.term()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
