"""ZeroMQ sockets of trainmon's own processes, opened only where libzmq cannot abort: it does so for want of resources.

libzmq ends its process (SIGABRT) where a descriptor, a thread or memory that it asks for is refused. So these are
checked first, with a margin. Where they are short there is no socket, and viewers follow the journals. In a training
there is no ZeroMQ at all.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

from trainhooks.protocol import rundir

SPARE_DESCRIPTORS = 64  # a context and its sockets take about a dozen, each peer one more
SPARE_THREADS = 4  # a context has two
SPARE_BYTES = 1 << 30  # of address space: stacks and heaps of these threads, and the library
LINGER_MS = 200  # for a publisher's last frame
MAX_RECEIVED = 1000  # taken at once


class Refused(OSError):
    """There can be no socket here. The message says why, in a few words."""


def shortage() -> str | None:
    """Return what this process has too little of for libzmq, in words; None where there is enough."""
    if has_few_descriptors(SPARE_DESCRIPTORS):
        return f"fewer than {SPARE_DESCRIPTORS} file descriptors are free (ulimit -n)"
    for limit, field, option in ((resource.RLIMIT_AS, 0, "-v"), (resource.RLIMIT_DATA, 5, "-d")):
        if _has_few_bytes(limit, field):
            return f"less than {SPARE_BYTES >> 30} GiB of memory may be reserved (ulimit {option})"
    if not _can_start_threads(SPARE_THREADS):
        return f"no {SPARE_THREADS} threads can be started (ulimit -u, or the limit of a container)"
    return None


def has_few_descriptors(spare: int) -> bool:
    """Return whether fewer than `spare` descriptors are free; true where that is unknown."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        return limit - len(os.listdir("/dev/fd")) < spare
    except OSError:  # no descriptor is left to list them with
        return True


def _has_few_bytes(limit: int, field: int) -> bool:
    """Return whether a limit of memory leaves too little.

    Args:
        field: of /proc/self/statm, what counts against the limit.
    """
    most = resource.getrlimit(limit)[0]
    if most == resource.RLIM_INFINITY:
        return False
    try:
        with open("/proc/self/statm", "rb") as source:
            used = int(source.read().split()[field]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return True
    return most - used < SPARE_BYTES


def _can_start_threads(count: int) -> bool:
    """Start threads and let them end. Trying is the one way to know: users, containers and systems have limits."""
    over = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        over.set()
        for thread in started:
            thread.join()
    return True


def _open_socket(kind: str) -> tuple[Any, Any]:
    """Return a context and its one socket.

    Raises:
        Refused: a resource is short, or the library is missing or broken.
    """
    if (short := shortage()) is not None:
        raise Refused(short)
    try:
        import zmq

        context = zmq.Context()
    except Exception as error:
        raise Refused(f"ZeroMQ cannot be used: {error}") from None
    try:
        return context, context.socket(getattr(zmq, kind))
    except zmq.ZMQError as error:
        context.term()
        raise Refused(f"ZeroMQ cannot be used: {error}") from None


class Publisher:
    """A PUB socket. It never blocks: a viewer that lags reads the journal instead. Not safe from several threads."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Refused: there can be no socket.
        """
        self._path = path
        self._context, self._socket = _open_socket("PUB")
        import zmq

        self._failure, self._flags = zmq.ZMQError, zmq.NOBLOCK
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        try:
            self._socket.bind(f"ipc://{path}")  # in the place of a predecessor that was killed
            self._inode = os.lstat(path).st_ino
        except (OSError, zmq.ZMQError) as error:
            self._socket.close()
            self._context.term()
            raise Refused(f"{path}: {error}") from None

    def publish(self, batch: bytes) -> None:
        with contextlib.suppress(self._failure):
            self._socket.send(batch, self._flags)

    def close(self) -> None:
        remove_socket(self._path, self._inode)
        self._socket.close()
        self._context.term()


def remove_socket(path: Path, inode: int) -> None:
    """Delete a socket's file, unless a successor's stands in its place."""
    with contextlib.suppress(OSError):
        if os.lstat(path).st_ino == inode:
            os.unlink(path)


class Subscriber:
    """A SUB socket connected to whoever publishes a run on this host. Its context is made when it is first needed."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._is_refused = False
        self._context: Any = None
        self._socket: Any = None

    def connect(self) -> None:
        """Connect once somebody publishes the run; later calls do nothing. A successor publishes at the same place."""
        if self._socket is not None or self._is_refused:
            return
        try:
            path = rundir.socket_path(self._run)
        except OSError:
            return
        if not path.is_socket():
            return
        try:
            self._context, self._socket = _open_socket("SUB")
        except Refused:
            self._is_refused = True
            return
        import zmq

        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        with contextlib.suppress(zmq.ZMQError):
            self._socket.connect(f"ipc://{path}")

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived, without waiting."""
        if self._socket is None:
            return []
        import zmq

        out: list[bytes] = []
        with contextlib.suppress(zmq.Again):
            while len(out) < MAX_RECEIVED:
                out.append(self._socket.recv(zmq.NOBLOCK))
        return out

    def wait(self, seconds: float) -> bool:
        """Sleep until a frame arrives, at most `seconds`. Return whether one did."""
        if self._socket is None:
            time.sleep(seconds)
            return False
        return bool(self._socket.poll(math.ceil(seconds * 1000)))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._context.term()
