"""The socket at which this process may be asked for something. In the background thread, which looks at each wake.

One caller is read at a time, others wait in the kernel. Nobody can hold the thread up: nothing here waits. Only this
user and root are heard; what others send is not even read.
"""

from __future__ import annotations

import contextlib
import os
import socket
from _socket import socket as Socket

# A test of the program may put others in their place there, and count their calls.
from os import fchmod, replace, unlink
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from trainhooks.lane_entries import monotonic_seconds
from trainhooks.protocol import control
from trainhooks.protocol.control import Answer, Request
from trainhooks.protocol.descriptors import Kept, kept_with_room
from trainhooks.protocol.journal import SEND_FLAGS

MAX_WAITING = 4  # callers that the kernel keeps
MAX_SILENCE = 2.0  # seconds for a request to arrive as a whole

OFF = "off: by setting"
UNKNOWN_CALLERS = "off: this system does not tell who asks"


def is_wanted() -> bool:
    return os.environ.get(control.VARIABLE, "1").lower() not in ("0", "false", "no", "off")


class Caller:
    """Who asks. Gets one answer; the end of the connection says that what was asked for is over. Never raises.

    Attributes:
        kept: the connection.
    """

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._received = b""
        self._until = monotonic_seconds() + MAX_SILENCE

    def receive(self) -> Optional[bytes]:
        """Return the request once it is there as a whole; without its end once it is too long, or will not come."""
        data: Optional[bytes] = b""
        with contextlib.suppress(BlockingIOError):
            data = None
            data = self._receive(0)
        if data:
            self._received += data
        line, end, _ = self._received.partition(b"\n")
        if end:
            return line + end
        is_over = data == b"" or len(self._received) >= control.MAX_MESSAGE or monotonic_seconds() >= self._until
        return self._received if is_over else None

    def _receive(self, flags: int) -> bytes:
        """Return what has arrived; nothing where the other side has closed.

        Raises:
            BlockingIOError: nothing has.
        """
        try:
            with _socket(self.kept) as connection:
                return connection.recv(control.MAX_MESSAGE, flags)
        except BlockingIOError:
            raise
        except OSError:
            return b""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits any longer."""
        try:
            return not self._receive(socket.MSG_PEEK)
        except BlockingIOError:
            return False

    def answer(self, answer: Answer) -> None:
        self.send(answer.line())

    def send(self, line: bytes) -> None:
        """Send what the kernel takes at once, which is all of it where the caller reads."""
        with contextlib.suppress(OSError), _socket(self.kept) as connection:
            while line:
                line = line[connection.send(line, SEND_FLAGS) :]

    def close(self) -> None:
        self.kept.close()


class ControlSocket:
    """Listen from the first `poll` on.

    Args:
        path: of the socket: in the run's private directory, no other process's.

    Attributes:
        status: why nobody can ask, as shown to users; None where all is well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listening: Optional[Kept] = None
        self._reading: Optional[Caller] = None
        self._callers: List[Caller] = []  # all that may be open
        self.status: Optional[str] = None
        if not is_wanted():
            self.status = OFF
        elif not hasattr(socket, "SO_PEERCRED"):
            self.status = UNKNOWN_CALLERS

    def poll(self) -> Optional[Tuple[Request, Caller]]:
        """Return a request that has arrived, with who is to be answered. Never raises, and never waits."""
        if self.status is not None:
            return None
        try:
            if self._listening is None:
                self._listening = self._listen()
            if self._reading is None:
                self._reading = self._accept(self._listening)
        except Exception as error:  # a program may forbid sockets with an error of its own
            if self._listening is not None and not self._listening.is_ours():  # closed by the program
                self._listening = None
            else:
                self.status = f"off: {getattr(error, 'strerror', None) or type(error).__name__}"
            return None
        caller = self._reading
        line = caller.receive() if caller is not None else None
        if caller is None or line is None:
            return None
        self._reading = None
        found = control.read_request(line) if line.endswith(b"\n") else _why_incomplete(line)
        if not isinstance(found, str):
            return found, caller
        caller.answer(Answer(control.REFUSED, [found]))
        caller.close()
        return None

    def _listen(self) -> Kept:
        """Listen at the path, which is this process's alone.

        The socket appears there once it listens: between `bind` and `listen` a caller would be refused.

        Raises:
            OSError: the directory is gone or read-only, its file system has no sockets, or descriptors are short.
        """
        unheard = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            unlink(unheard)
        opened = Socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fchmod(opened.fileno(), 0o600)  # of what is made by `bind`, whatever the umask
            with control.address(unheard) as address:
                opened.bind(str(address))
            opened.listen(MAX_WAITING)
            replace(unheard, self._path)
            return kept_with_room(opened.detach())
        finally:
            opened.close()

    def _accept(self, listening: Kept) -> Optional[Caller]:
        """Return the next caller that may be heard; None where nobody calls.

        Raises:
            OSError: descriptors are short.
        """
        try:
            with _socket(listening) as server:
                number, _ = server._accept()  # type: ignore[attr-defined]  # as `accept` calls it
        except (BlockingIOError, ConnectionError):
            return None
        connection = Socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, number)
        try:
            if control.peer_uid(connection) not in (os.getuid(), 0):
                return None
            caller = Caller(kept_with_room(connection.detach()))
        finally:
            connection.close()
        self._callers = [*(known for known in self._callers if known.kept.is_ours()), caller]
        return caller

    def close(self) -> None:
        """Listen no more, until the next `poll`."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):  # with the run's directory
                unlink(self._path)

    def forget(self) -> None:
        """In a forked child: leave the socket, which is its parent's."""
        self.status = "off: in a forked process"
        for kept in [self._listening, *(caller.kept for caller in self._callers)]:
            if kept is not None:
                kept.close()


def _why_incomplete(line: bytes) -> str:
    if len(line) >= control.MAX_MESSAGE:
        return f"the request is longer than {control.MAX_MESSAGE} bytes"
    return "the request has no end"


@contextlib.contextmanager
def _socket(kept: Kept) -> Iterator[Socket]:
    """Yield a descriptor of ours as a socket that never waits.

    Raises:
        OSError: the program has closed it.
    """
    if not kept.is_ours():
        raise OSError("closed by the program")
    used = Socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, kept.number)
    try:
        used.setblocking(False)  # whatever default the program has set
        yield used
    finally:
        used.detach()
