"""The line to a far side: a command started here, requests on its stdin, frames on its stdout.

What comes over it is not trusted: a frame that is too long, not compressed or not as agreed ends the line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
import zlib
from dataclasses import dataclass
from typing import Any

from monitor.errors import UserError
from monitor.remote import bundle
from monitor.remote.far_side import END, LENGTH, MAGIC, MAX_FRAME
from trainhooks.protocol.limits import clean

START_SECONDS = 60.0  # until the far side says hello: a person may have to type a password
MAX_BANNER = 1 << 16  # bytes that a login shell prints before it
KEPT_ERRORS = 4096  # bytes of what the command prints to stderr
READ_BYTES = 1 << 16
WRITE_SECONDS = 10.0  # for a request; a far side that takes none is as good as gone
OWN_FAILURE = 255  # the exit code by which ssh says that it is to blame, not what it ran


class LineCut(Exception):
    """The line is gone, or what came over it makes no sense. The message says which."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a run is: the host's name for a person, and the words that run a command there."""

    host: str
    via: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What the far side told: a header with its `kind`, and bytes."""

    header: dict[str, Any]
    data: bytes

    @property
    def kind(self) -> str:
        return str(self.header.get("kind"))


class Line:
    """An open line. Not safe from several threads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._in, self._out, self._err = (stream.fileno() for stream in (process.stdin, process.stdout, process.stderr))
        for handle in (self._in, self._out, self._err):
            os.set_blocking(handle, False)
        self._decompressor = zlib.decompressobj()
        self._unread = b""
        self._errors = b""
        self._watched = [self._out, self._err]
        self.bytes_received = 0
        self.heard = time.monotonic()  # when anything came last

    def send(self, request: dict[str, Any]) -> None:
        """
        Raises:
            LineCut: it is gone.
        """
        self._write(json.dumps(request).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        until = time.monotonic() + WRITE_SECONDS
        while data:
            try:
                data = data[os.write(self._in, data) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LineCut("the far side takes no requests") from None
                select.select([], [self._in], [], 0.1)
            except OSError:
                raise LineCut(self.last_error()) from None

    def begin(self, first: bytes, seconds: float) -> None:
        """Wait until the far side says that it is there.

        Args:
            first: what has to be written to its stdin first.

        Raises:
            LineCut: it does not, in so many seconds.
        """
        self._write(first)
        until = time.monotonic() + seconds
        while MAGIC not in self._unread:
            if len(self._unread) > MAX_BANNER:
                raise LineCut("what answers is no trainmon")
            if not self._read(until - time.monotonic()) and time.monotonic() >= until:
                raise LineCut(f"no answer within {seconds:g} s")
        self._unread = self._unread.partition(MAGIC)[2]

    def frames(self, seconds: float) -> list[Frame]:
        """Return what has come; wait so long for the first bytes of it.

        Raises:
            LineCut: the line is gone, or what came is no frame.
        """
        self._read(seconds)
        found = []
        while len(self._unread) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._unread)
            if length > MAX_FRAME:
                raise LineCut("a frame is too long")
            end = LENGTH.size + length
            if len(self._unread) < end + len(END):
                break
            found.append(self._frame(self._unread[LENGTH.size : end]))
            self._unread = self._unread[end + len(END) :]
        return found

    def _frame(self, packed: bytes) -> Frame:
        try:
            content = self._decompressor.decompress(packed, MAX_FRAME)
            head, end, data = content.partition(b"\n")
            header = json.loads(head)
        except (zlib.error, ValueError, RecursionError):
            raise LineCut("a frame is not readable") from None
        if self._decompressor.unconsumed_tail or not end or not isinstance(header, dict):
            raise LineCut("a frame is not as agreed")
        return Frame(header, data)

    def _read(self, seconds: float) -> bool:
        """Read what is there, once; wait so long for it. Return whether anything came."""
        ready = select.select(self._watched, [], [], max(0.0, seconds))[0]
        for handle in ready:
            try:
                data = os.read(handle, READ_BYTES)
            except BlockingIOError:
                continue
            if handle == self._err:
                self._errors = (self._errors + data)[-KEPT_ERRORS:]
                if not data:
                    self._watched = [self._out]
            elif data:
                self._unread += data
                self.bytes_received += len(data)
                self.heard = time.monotonic()
            else:
                raise LineCut(self.last_error())
        return bool(ready)

    def last_error(self) -> str:
        """Return what the command said last, or how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        with contextlib.suppress(OSError, ValueError):
            self._errors = (self._errors + os.read(self._err, READ_BYTES))[-KEPT_ERRORS:]
        lines = self._errors.replace(bundle.PROMPT, b"").decode("utf-8", "replace").splitlines()
        said = next((clean(line, 200) for line in reversed(lines) if clean(line)), "")
        return said or f"the line was cut (exit code {self._process.returncode})"

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        """Close the line; the far side ends as its stdin does, the command here at once."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_line(target: Target, asks: bool = True) -> Line:
    """Start a far side: that of the trainmon there, else this one's, sent to a Python.

    Args:
        asks: whether the command may ask a person on the terminal, as ssh does for a password.

    Raises:
        LineCut: there is neither, or no way there.
        UserError: the command cannot be started here.
    """
    said = ""
    for words, first in ((["trainmon", "relay"], b""), (list(bundle.COMMAND), bundle.first_line())):
        line = _start([*target.via, *words], asks)
        try:
            line.begin(first, START_SECONDS)
            return line
        except LineCut as error:
            said, code = said or str(error), line.exit_code
            line.close()
            if code in (None, OWN_FAILURE):
                break
        except BaseException:
            line.close()
            raise
    raise LineCut(said)


def _start(words: list[str], asks: bool) -> Line:
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=not asks,  # then it has no terminal to ask on
        )
    except OSError as error:
        raise UserError(f"{words[0]}: {error.strerror or error}") from None
    return Line(process)
