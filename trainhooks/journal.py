"""Where a producer's lines go: the journal first, the socket second. The recorder uses them too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Optional

from trainhooks import rundir
from trainhooks.libraries import library

MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes kept for a journal that cannot be written now
LINGER = 200  # milliseconds for the socket's last frame


class Journal:
    """The file. A write that fails leaves no half line; what cannot be written waits, then is dropped and counted."""

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self._path = path
        self._waiting = b""
        self.waiting_lines = 0  # refused so far; lost if the end comes before there is room
        self._handle = -1
        self._open()

    def _open(self) -> None:
        """Open the file, if that can be; an unfinished last line of an earlier writer is ended."""
        with contextlib.suppress(OSError):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            size = os.fstat(self._handle).st_size
            if size and os.pread(self._handle, 1, size - 1) != b"\n":
                os.write(self._handle, b"\n")

    def append(self, batch: bytes, lines: int) -> None:
        """Write whole lines. Never raises: what the disk refuses is tried again with the next batch."""
        self._waiting += batch
        self.waiting_lines += lines
        if self._handle < 0:
            self._open()
        if self._handle >= 0 and self._write(self._waiting):
            self._waiting, self.waiting_lines = b"", 0
        elif len(self._waiting) > MAX_UNWRITTEN:
            self.dropped += self.waiting_lines
            self._waiting, self.waiting_lines = b"", 0

    def _write(self, data: bytes) -> bool:
        done = 0
        try:
            while done < len(data):  # a disk that fills up takes a part, and refuses the rest
                done += os.write(self._handle, data[done:] if done else data)
        except OSError:
            if done:  # no half line may stay, or two lines merge
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, os.fstat(self._handle).st_size - done)
            return False
        return True

    def close(self) -> None:
        self.dropped += self.waiting_lines
        self.waiting_lines = 0
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Publisher:
    """The PUB socket, where pyzmq is installed. It never blocks: a viewer that lags reads the journal instead."""

    def __init__(self, context: Any, sock: Any, path: Path, again: Any) -> None:
        self._context = context
        self._socket = sock
        self._path = path
        self._again = again

    @classmethod
    def open(cls, producer: str) -> Optional["Publisher"]:
        """A bound publisher, or None where that cannot be: viewers then follow the journal."""
        zmq = library("zmq")
        if zmq is None:
            return None
        try:
            path = rundir.socket_path(producer)
            context = zmq.Context()
            sock = context.socket(zmq.PUB)
            sock.setsockopt(zmq.LINGER, LINGER)
            sock.bind(f"ipc://{path}")
        except (OSError, zmq.ZMQError):
            return None
        return cls(context, sock, path, zmq)

    def publish(self, batch: bytes) -> None:
        with contextlib.suppress(self._again.ZMQError):
            self._socket.send(batch, self._again.NOBLOCK)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end zmq itself may be half gone
            self._socket.close()
            self._context.term()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
