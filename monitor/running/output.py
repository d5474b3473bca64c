"""Copy and merge the output files that the training writes.

The training never writes to a pipe or terminal that a trainmon process must read, so none of them can block it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from monitor.running import inherited
from monitor.sources.tail_file import TailedFile
from trainhooks import rundir

STDOUT = "stdout.log"  # only while the two streams are separate; both are merged into the console file
STDERR = "stderr.log"

CHUNK = 1 << 18
WRITERS_SECONDS = 0.1  # between two looks whether the program has closed its output
PARTIAL_SECONDS = 0.5  # that the merge waits for the rest of a line


def open_append(path: Path) -> int:
    """Open `path` for appending, private to this user. Return the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def output_files(run: Path) -> list[Path]:
    """Return the files that a training's output may go to."""
    return [run / name for name in (rundir.CONSOLE, STDOUT, STDERR)]


class Copy:
    """Copy a growing file to a descriptor, byte for byte, until its reader is gone."""

    def __init__(self, source: Path, target: int, *, alone: bool = False) -> None:
        """
        Args:
            alone: whether nothing else is ever written to `target`. Where it is a pipe, it is then given up as soon as
                no process can write to the file any more: its reader sees the end when the program closes its output.
        """
        self._source = TailedFile(source)
        self._target = target
        self._open = True
        self._ends = alone and inherited.is_pipe(target) and inherited.tells_writers(source, self._source.handle)
        self._due = 0.0  # monotonic time of the next look for writers

    def step(self) -> bool:
        """Copy new output, up to a bound. Return whether there was any."""
        if not self._open:
            return False
        ended = self._ends and self._has_no_writer()  # before reading: what they wrote last is copied below
        data, _ = self._source.read(CHUNK)
        if data:
            self._open = _write_all(self._target, data)
        elif ended:
            self._open = False
            inherited.release_standard(self._target)
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
        self._progress = run / ".merged"
        self._sources = [TailedFile(run / name) for name in (STDOUT, STDERR)]
        self._waiting = [0.0, 0.0]  # monotonic time since when a partial line waits; 0: none waits
        with contextlib.suppress(OSError, struct.error):
            self._sources[0].offset, self._sources[1].offset = struct.unpack("<QQ", self._progress.read_bytes())
        self._console = open_append(run / rundir.CONSOLE)
        os.close(open_append(self._progress))  # private, like all files of a run

    @classmethod
    def of(cls, run: Path) -> Merge | None:
        """Return the merge of a run, or None where its output is in one file."""
        try:
            return cls(run)
        except OSError:
            return None

    def step(self, *, last: bool = False) -> bool:
        """Merge new output, up to a bound. Return whether there was any."""
        moved = [self._move(which, last) for which in (0, 1)]
        return any(moved)

    def finish(self) -> None:
        """Merge the rest and remove the two files: the console file has everything."""
        while self.step(last=True):
            pass
        complete = all(source.size() <= source.offset for source in self._sources)
        if complete:  # otherwise the disk is full, and the two files are kept
            for name in (STDOUT, STDERR, self._progress.name):
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
        source.take(data[:written])
        with contextlib.suppress(OSError):
            self._progress.write_bytes(struct.pack("<QQ", *(source.offset for source in self._sources)))
        return True


def pump(master: int, console: int) -> None:
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


# Disk space preallocated for a training's output.
#
# A training's output goes to a file. On a full disk its next print would fail and could end it, which a terminal would
# not do. So some blocks are reserved beyond the end of the file.

PREALLOCATED_BYTES = 8 << 20  # bytes per file: a day of one line per second
MAX_FREE_SHARE = 16  # at most 1/16 of the free space: the reserve itself must not fill the disk

_KEEP_SIZE = 1


class Preallocation:
    """Reserve disk space for growing files. Does nothing where the system has no fallocate."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._allocate = _fallocate()
        self._until: dict[int, int] = {}  # descriptor -> offset up to which space is reserved
        self._paths: dict[int, Path] = {}
        for path in paths:
            with contextlib.suppress(OSError):  # for reading: an end of the output shows by its last writer's close
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._until[handle], self._paths[handle] = 0, path

    def step(self) -> None:
        """Reserve more where half is used. Never raises: the reserve is optional."""
        for handle, until in self._until.items():
            with contextlib.suppress(OSError):
                size = os.fstat(handle).st_size
                # Beyond the upper bound the file was emptied since, which released the reserve.
                if size + PREALLOCATED_BYTES // 2 <= until <= size + PREALLOCATED_BYTES:
                    continue
                disk = os.fstatvfs(handle)
                ahead = min(PREALLOCATED_BYTES, disk.f_bavail * disk.f_frsize // MAX_FREE_SHARE)
                if ahead and self._reserve(self._paths[handle], size, ahead):
                    self._until[handle] = size + ahead

    def _reserve(self, path: Path, size: int, ahead: int) -> bool:
        if self._allocate is None:
            return False
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return self._allocate(handle, _KEEP_SIZE, size, ahead) == 0
        finally:
            os.close(handle)

    def close(self) -> None:
        for handle in self._until:
            os.close(handle)
        self._until, self._paths = {}, {}


def release_preallocated(paths: Iterable[Path]) -> None:
    """Release the reserved space of files that no longer grow.

    Called when the training has ended. A worker that outlived it and prints between the two calls below loses that
    print; keeping the blocks of every run forever would be worse.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(handle, os.fstat(handle).st_size)
            finally:
                os.close(handle)


def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the system's fallocate, or None. Python's posix_fallocate would make the file longer."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Any = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function  # type: ignore[no-any-return]
