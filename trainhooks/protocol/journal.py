"""The file that a producer writes its lines to, and the socket that tells of them. The recorder uses both, too."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from _socket import socket as Socket  # below what gevent replaces, which waits where this one refuses
from os import write  # a test of the program may have put another in its place there
from pathlib import Path
from typing import Iterator, Optional

from trainhooks.protocol import rundir
from trainhooks.protocol.descriptors import Kept, kept_with_room

MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes kept for a journal that cannot be written now
MAX_DATAGRAM = 128 * 1024  # bytes: more than a line, less than a socket sends at once (net.core.wmem_default)
RETRY_SECONDS = 1.0  # between two attempts while nobody receives
SEND_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class Journal:
    """A file of whole lines. What cannot be written waits, and past MAX_UNWRITTEN is dropped and counted.

    Attributes:
        dropped: events dropped so far; a line of several steps is as many.
        waiting_events: events refused so far; lost if the end comes before there is room.
    """

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self._path = path
        self._waiting = b""
        self.waiting_events = 0
        self._file: Optional[Kept] = None
        self._open()

    def _open(self) -> None:
        """Open the file where that is possible, and end an earlier writer's unfinished last line."""
        with contextlib.suppress(Exception):  # a program may forbid files with an error of its own
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = Kept(handle, self._path)
            size = os.fstat(self._file.number).st_size
            if size and os.pread(self._file.number, 1, size - 1) != b"\n":
                write(self._file.number, b"\n")

    def append(self, batch: bytes, events: int) -> None:
        """Write whole lines. Never raises: what the disk refuses is tried again with the next batch."""
        self._waiting += batch
        self.waiting_events += events
        if self._file is None or not self._file.is_ours():  # the program may have closed it
            self._file = None
            self._open()
        if self._file is not None and self._write(self._file, self._waiting):
            self._waiting, self.waiting_events = b"", 0
        elif len(self._waiting) > MAX_UNWRITTEN:
            self.dropped += self.waiting_events
            self._waiting, self.waiting_events = b"", 0

    def _write(self, file: Kept, data: bytes) -> bool:
        done = 0
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        try:
            # A program may let the signal of a file that is too large end it, as a shell's programs do.
            if limit != resource.RLIM_INFINITY and os.fstat(file.number).st_size + len(data) > limit:
                return False
            while done < len(data):  # a disk that fills up takes a part and refuses the rest
                if done and not file.is_ours():
                    return False
                done += write(file.number, data[done:] if done else data)
        except Exception:  # as above
            if done and file.is_ours():  # no half line may stay, or two lines merge
                with contextlib.suppress(OSError):
                    os.ftruncate(file.number, os.fstat(file.number).st_size - done)
            return False
        return True

    def close(self) -> None:
        self.dropped += self.waiting_events
        self.waiting_events = 0
        if self._file is not None:
            self._file.close()
            self._file = None


class Notifier:
    """Send what was appended to a journal on to whoever records the run on this host, as datagrams.

    Python's own sockets, and no library: libzmq aborts a process that is out of descriptors, threads or memory.
    Nothing is waited for and nothing is tried twice: what is not taken at once is dropped, and read from the journal.
    """

    def __init__(self, run: Path) -> None:
        self._inbox: Optional[str] = None
        self._kept: Optional[Kept] = None
        self._retry_at = 0.0  # monotonic seconds; 0 where somebody receives
        with contextlib.suppress(OSError):  # no private directory for sockets: viewers follow the journal
            self._inbox = str(rundir.inbox_path(run))

    def send(self, batch: bytes) -> None:
        """Send whole lines. Never raises, and never waits."""
        if self._inbox is None or (self._retry_at and time.monotonic() < self._retry_at):
            return
        try:
            if self._kept is None or not self._kept.is_ours():  # the program may have closed it
                self._kept = kept_with_room(Socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach())
            sender = Socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0, self._kept.number)
        except Exception:  # a program may forbid sockets with an error of its own
            self.close()
            self._inbox = None  # where descriptors are short, the program needs them more
            return
        try:
            for datagram in datagrams(batch):
                sender.sendto(datagram, SEND_FLAGS, self._inbox)
            self._retry_at = 0.0
        except BlockingIOError:  # the recorder is behind
            pass
        except Exception:  # nobody records the run, or as above
            self._retry_at = time.monotonic() + RETRY_SECONDS
        finally:
            sender.detach()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def datagrams(batch: bytes) -> Iterator[bytes]:
    """Return whole lines in pieces of at most MAX_DATAGRAM bytes."""
    start = 0
    while len(batch) - start > MAX_DATAGRAM:
        end = batch.rfind(b"\n", start, start + MAX_DATAGRAM) + 1
        if end <= start:  # no line is as long: not from here
            return
        yield batch[start:end]
        start = end
    yield batch[start:] if start else batch
