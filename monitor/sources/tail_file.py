"""Read the newest lines of the training's output for a screen. Of a flood only a bounded part at its end is read."""

from __future__ import annotations

import math
import os
import re
import time
from bisect import bisect_left
from collections import deque
from pathlib import Path

from monitor.sources.sparse_files import FREED, next_data
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.limits import MAX_NAME, MAX_TEXT, clean

# A file that another process appends to, read as it grows. It is held open, so it is readable after its removal.
#
# A program that opens `/dev/stdout` for writing truncates the file and writes from its start. The next line may be as
# long as the one before, so the length alone does not show it: the bytes read last are compared, too.

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


MAX_LINES = 400  # kept for the screen
MAX_POLL = 256 * 1024  # bytes read in one poll; earlier ones are skipped, with a line that says so
MAX_PARTIAL = 64 * 1024  # bytes of an unfinished line that are kept
MAX_INDENT = 80

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor movements
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and similar: titles, links, the clipboard
    r"|\x1b[ -/]*[0-~]"  # other short ones
    r"|\x1b"
)


def displayed_text(line: bytes) -> str:
    """Return a line as a terminal would show it: the last frame of a progress bar, without escape sequences."""
    frames = [frame for frame in line[-4 * MAX_PARTIAL :].split(b"\r") if frame.strip()]
    if not frames:
        return ""
    text = _ESCAPES.sub("", frames[-1][: 4 * MAX_TEXT].decode("utf-8", "replace")).expandtabs(8)
    indent = min(len(text) - len(text.lstrip(" ")), MAX_INDENT)
    return " " * indent + clean(text)


class Lines:
    """Split bytes into lines and keep the newest. An unfinished last line counts as seen."""

    def __init__(self) -> None:
        self._whole: deque[str] = deque(maxlen=MAX_LINES)
        self._partial = b""
        self._finished = 0

    def feed(self, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-MAX_PARTIAL:]
        self._finished += len(whole)
        self._whole.extend(displayed_text(line) for line in whole[-MAX_LINES:])

    def skip(self, count: int) -> None:
        """Record that bytes were skipped: drop the partial line before them, and add a line that says so."""
        self._partial = b""
        self._finished += 1
        self._whole.append(f"… {count / 2**20:,.1f} MiB of output not shown …")

    def newest(self) -> tuple[tuple[str, ...], int]:
        """Return up to `LINES` lines, and the number of all lines seen."""
        growing = displayed_text(self._partial)
        if not growing:
            return tuple(self._whole), self._finished
        return (*self._whole, growing)[-MAX_LINES:], self._finished + 1


class Console:
    """Follow the file with the training's output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = FilePosition()
        self._lines = Lines()

    def poll(self) -> tuple[tuple[str, ...], int]:
        """Return the newest lines, and the number of all lines seen."""
        try:
            with open(self._path, "rb", buffering=0, opener=rundir.open_at_once) as source:
                self._advance(source.fileno())
        except OSError:
            pass  # no output yet, or removed: keep the lines seen
        return self._lines.newest()

    def _advance(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        behind = size - self._place.offset
        if behind > MAX_POLL:
            self._lines.skip(behind - MAX_POLL)
            self._place = FilePosition(size - MAX_POLL)
        while data := self._place.peek(handle, MAX_POLL):  # of a truncated file from its start; lines seen are kept
            self._place.advance(data)
            self._lines.feed(data)
            if self._place.offset >= size:
                return


# Arrival times of output lines, as far as they were observed. Pure.

MAX_POLLS = MAX_LINES  # polls that saw new lines; older lines are no longer on the screen


class LineTimestamps:
    """Record when lines were first seen. For lines present at the first poll that is unknown."""

    def __init__(self) -> None:
        self._seen: list[int] = []  # total number of lines, at every poll that saw new ones
        self._times: list[float] = []

    def times_of(self, lines: int, seen: int, now: float) -> tuple[float, ...]:
        """Return when each of the newest `lines` of `seen` was first seen; nan where unknown."""
        if self._seen and seen < self._seen[-1]:  # the file was truncated
            self._seen, self._times = [], []
        if not self._seen or seen > self._seen[-1]:
            self._times.append(now if self._seen or not seen else math.nan)
            self._seen.append(seen)
            if len(self._seen) > MAX_POLLS:
                del self._seen[0], self._times[0]
        return tuple(self._times[bisect_left(self._seen, number)] for number in range(seen - lines + 1, seen + 1))


# What a launched training imports before its first event: a file that its processes append to.

OpenImports = tuple[tuple[str, float], ...]  # outermost first: name, and monotonic time of its start


def starting_imports(run: Path) -> OpenImports:
    """Return the imports open in the live process that started first. Only for runs of this machine."""
    try:
        with open(run / rundir.STARTING, "rb", opener=rundir.open_at_once) as source:
            lines = source.read(2 * rundir.MAX_STARTING)
    except OSError:
        return ()
    living = [
        stack for pid, stack in all_imports(lines).items() if stack and process_identity.process_alive(pid, None, None)
    ]
    longest = min(living, key=lambda stack: stack[0][1], default=[])
    return tuple(longest)


def all_imports(lines: bytes) -> dict[int, list[tuple[str, float]]]:
    """Return the open imports of every process. Pure."""
    open_imports: dict[int, list[tuple[str, float]]] = {}
    for line in lines.split(b"\n")[:-1]:
        pid, _, rest = line.partition(b" ")
        at, _, name = rest.partition(b" ")
        if not (pid.isdigit() and at.isdigit()) or len(line) > 2 * MAX_NAME:
            continue
        stack = open_imports.setdefault(int(pid), [])
        if name:
            stack.append((clean(name.decode("utf-8", "replace"), MAX_NAME), int(at) / 1e9))
        elif stack:
            stack.pop()
    return open_imports
