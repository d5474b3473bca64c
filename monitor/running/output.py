"""Copy and merge the output files that the training writes.

The training never writes to a pipe or terminal that a trainmon process must read, so none of them can block it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import select
import struct
import time
from pathlib import Path

from monitor.running import inherited
from monitor.running.output_marks import OutputMarks
from monitor.sources.console_marks import STDERR as STDERR_MARK
from monitor.sources.console_marks import STDOUT as STDOUT_MARK
from monitor.sources.tail_file import TailedFile
from trainhooks.protocol import rundir

STDOUT = "stdout.log"  # only while the two streams are separate; both are merged into the console file
STDERR = "stderr.log"
STREAMS = (STDOUT, STDERR)
PROGRESS = ".merged"  # how much of the two is in the console file
OUTPUT = (rundir.CONSOLE, *STREAMS)

MIN_FREE_BYTES_TO_RECORD = 1 << 20  # on the disk of the runs: with less, nothing is recorded
MIN_OUTPUT_BYTES = 512 << 20  # with less, prints could fill the disk faster than older ones are freed, and then fail
CHUNK = 1 << 18
WRITERS_SECONDS = 0.1  # between two looks whether the program has closed its output
PARTIAL_SECONDS = 0.5  # that the merge waits for the rest of a line


def check_room(runs: Path) -> None:
    """Raise OSError if there is no space for a run below `runs`."""
    if free_bytes(next(path for path in (runs, *runs.parents) if path.exists())) < MIN_FREE_BYTES_TO_RECORD:
        raise OSError(errno.ENOSPC, f"less than {MIN_FREE_BYTES_TO_RECORD >> 20} MiB are free", str(runs))


def free_bytes(path: Path) -> int:
    """Return the bytes that are free on the disk of a file.

    Raises:
        OSError: the file does not exist.
    """
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def limit(run: Path) -> str | None:
    """Return why the program's output must not go to files of a run; None if it may."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return "the size of files is limited (ulimit -f)"
    if free_bytes(run) < MIN_OUTPUT_BYTES:
        return f"less than {MIN_OUTPUT_BYTES >> 20} MiB are free on its disk"
    return None


def open_append(path: Path) -> int:
    """Open `path` for appending, private to this user. Return the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def output_files(run: Path) -> list[Path]:
    """Return the files that a training's output may go to."""
    return [run / name for name in OUTPUT]


class Copied:
    """How far the front has passed on each output file, in memory that it shares with the supervisor."""

    _POSITION = struct.Struct("<Q")
    GIVEN_UP = 2**63  # nothing of it is passed on, or nothing more: its reader is gone

    def __init__(self, handle: int | None = None) -> None:
        """
        Args:
            handle: that of another one whose memory is shared; None: this is new.
        """
        size = len(OUTPUT) * self._POSITION.size
        self.handle = handle if handle is not None else self._opened(size)  # None: of a fork alone
        self._memory = mmap.mmap(-1 if self.handle is None else self.handle, size)
        if handle is None:
            for name in OUTPUT:
                self.put(name, self.GIVEN_UP)

    @staticmethod
    def _opened(size: int) -> int | None:
        try:
            handle = os.memfd_create("copied")
        except (AttributeError, OSError):
            return None
        os.ftruncate(handle, size)
        return handle

    def put(self, name: str, position: int) -> None:
        self._POSITION.pack_into(self._memory, OUTPUT.index(name) * self._POSITION.size, position)

    def of(self, name: str) -> int:
        position: int = self._POSITION.unpack_from(self._memory, OUTPUT.index(name) * self._POSITION.size)[0]
        return position


class Copy:
    """Copy a growing file to a descriptor, byte for byte, until its reader is gone."""

    def __init__(
        self, source: Path, target: int, copied: Copied | None = None, *, alone: bool = False, begin: int = 0
    ) -> None:
        """
        Args:
            begin: the first byte that is copied.
            copied: where to say how far it is.
            alone: whether nothing else is ever written to `target`. Where it is a pipe, it is then given up as soon as
                no process can write to the file any more: its reader sees the end when the program closes its output.
        """
        self._source = TailedFile(source, begin)
        self._target = target
        self._copied = copied
        if copied is not None:
            copied.put(source.name, 0)
        self._open = True
        self._ends = alone and inherited.is_pipe(target) and inherited.tells_writers(source, self._source.handle)
        self._due = 0.0  # monotonic time of the next look for writers
        self.is_behind = False  # whether there was more than is copied at once

    @property
    def lost(self) -> int:
        """Return the bytes that were not copied: on a full disk they were freed before."""
        return self._source.skipped

    def step(self) -> bool:
        """Copy new output, up to a bound. Return whether there was any."""
        if not self._open:
            return False
        ended = self._ends and self._has_no_writer()  # before reading: what they wrote last is copied below
        data, _ = self._source.read(CHUNK)
        self.is_behind = len(data) == CHUNK
        if data:
            self._open = _write_all(self._target, data)
        elif ended:
            self._open = False
            inherited.release_standard(self._target)
        if self._copied is not None:
            self._copied.put(self._source.name, self._source.offset if self._open else Copied.GIVEN_UP)
        return bool(data)

    def _has_no_writer(self) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + WRITERS_SECONDS
        return not inherited.is_written(self._source.handle)


def _write_all(target: int, data: bytes) -> bool:
    """Write to a descriptor that may be slow. Return False once its reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # another process made the shared terminal or pipe non-blocking
            select.select([], [target], [], 1.0)
        except OSError:  # `| head` exited, the terminal closed, the disk is full: the training continues
            return False
    return True


class Merge:
    """Merge the two output files into the console file, by whole lines where possible.

    The position is kept in a file, so that a recorder that takes over after a crash continues from there.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        # Never emptied: who is killed at any moment leaves a position, or the next one would begin at the first line.
        self._progress = os.open(run / PROGRESS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._sources = [TailedFile(run / name) for name in STREAMS]
        self._waiting = [0.0, 0.0]  # monotonic time since when a partial line waits; 0: none waits
        with contextlib.suppress(OSError, struct.error):
            self._sources[0].offset, self._sources[1].offset = struct.unpack("<QQ", os.pread(self._progress, 16, 0))
        self._console = open_append(run / rundir.CONSOLE)
        self._marks = OutputMarks(run)

    @classmethod
    def of(cls, run: Path) -> Merge | None:
        """Return the merge of a run, or None where its output is in one file."""
        try:
            return cls(run)
        except OSError:
            return None

    def position(self, name: str) -> int:
        """Return how much of this stream is in the console file."""
        return self._sources[STREAMS.index(name)].offset

    def step(self, *, last: bool = False) -> bool:
        """Merge new output, up to a bound. Return whether there was any."""
        moved = [self._move(which, last) for which in (0, 1)]
        return any(moved)

    def finish(self) -> None:
        """Merge the rest and remove the two files: the console file has everything."""
        while self.step(last=True):
            pass
        self._marks.close()
        complete = all(source.size() <= source.offset for source in self._sources)
        if complete:  # otherwise the disk is full, and the two files are kept
            for name in (*STREAMS, PROGRESS):
                with contextlib.suppress(OSError):
                    os.unlink(self._run / name)

    def _move(self, which: int, last: bool) -> bool:
        source = self._sources[which]
        data = source.peek(source.handle, CHUNK)
        if not data:
            return False
        # A progress bar ends its frames with a carriage return, and may not end a line for hours.
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if whole == 0 and len(data) < CHUNK and not last:
            now = time.monotonic()
            self._waiting[which] = self._waiting[which] or now
            if now - self._waiting[which] < PARTIAL_SECONDS:
                return False
        self._waiting[which] = 0.0
        data = data if last else data[: whole or len(data)]
        try:
            written = os.write(self._console, data)
        except OSError:  # the disk is full; the data stays in the training's own file
            return False
        source.advance(data[:written])
        self._marks.add(os.lseek(self._console, 0, os.SEEK_CUR), (STDOUT_MARK, STDERR_MARK)[which])
        with contextlib.suppress(OSError):
            os.pwrite(self._progress, struct.pack("<QQ", *(source.offset for source in self._sources)), 0)
        return True


def pump(master: int, console: int, marks: OutputMarks) -> None:
    """Copy a pseudo-terminal into the console file until its last writer is gone."""
    while True:
        try:
            data = os.read(master, CHUNK)
        except OSError:  # Linux reports the last writer's end as an I/O error
            return
        if not data:
            return
        with contextlib.suppress(OSError):  # a full disk: keep reading, or the training would block
            os.write(console, data)
        marks.step()
