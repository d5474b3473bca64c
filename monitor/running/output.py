"""The training's output: files that it writes itself, copied to trainmon's own output and merged into one console.

The training never writes to a pipe or a terminal that a trainmon process must empty, so none of them can stop it.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from pathlib import Path

from monitor.sources.growing import Growing
from trainhooks import rundir

STDOUT = "stdout.log"  # only while the two are kept apart: all of it goes to the console's file, too
STDERR = "stderr.log"

CHUNK = 1 << 18
PARTIAL_SECONDS = 0.5  # how long the merge waits for the rest of a line


def create(path: Path) -> int:
    """A descriptor that appends to `path`, private to this user."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def files(run: Path) -> list[Path]:
    """The files that a training's output may go to."""
    return [run / name for name in (rundir.CONSOLE, STDOUT, STDERR)]


class Copy:
    """Copies a growing file to one of our own descriptors, byte for byte, until nobody reads there any more."""

    def __init__(self, source: Path, target: int) -> None:
        self._source = Growing(source)
        self._target = target
        self._open = True

    def step(self) -> bool:
        """Copy what is there, up to a bound; whether there was anything."""
        if not self._open:
            return False
        data, _ = self._source.read(CHUNK)
        if data:
            self._open = _write_all(self._target, data)
        return bool(data)


def _write_all(target: int, data: bytes) -> bool:
    """Write to a descriptor that may be slow; False once nobody reads there."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # another process made the shared terminal or pipe non-blocking
            select.select([], [target], [], 1.0)
        except OSError:  # `| head` has gone, the terminal is closed, the disk is full: the training goes on
            return False
    return True


class Merge:
    """Joins the two output files into the console's, whole lines where it can.

    How far it came is kept in a file, so that whoever records the run after a crash goes on from there.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._progress = run / ".merged"
        self._sources = [Growing(run / name) for name in (STDOUT, STDERR)]
        self._waiting = [0.0, 0.0]  # since when a line has been waiting for its rest
        with contextlib.suppress(OSError, struct.error):
            self._sources[0].offset, self._sources[1].offset = struct.unpack("<QQ", self._progress.read_bytes())
        self._console = create(run / rundir.CONSOLE)
        os.close(create(self._progress))  # private, as all files of a run are

    @classmethod
    def of(cls, run: Path) -> Merge | None:
        """The merge of a run, or None where its output is in one file."""
        try:
            return cls(run)
        except OSError:
            return None

    def step(self, *, last: bool = False) -> bool:
        """Merge what has come, up to a bound; whether there was anything."""
        moved = [self._move(which, last) for which in (0, 1)]
        return any(moved)

    def finish(self) -> None:
        """Merge what is left and remove the two files; the console's file has it all."""
        while self.step(last=True):
            pass
        complete = all(source.size() <= source.offset for source in self._sources)
        if complete:  # else the disk is full, and the two files are what there is
            for name in (STDOUT, STDERR, self._progress.name):
                with contextlib.suppress(OSError):
                    os.unlink(self._run / name)

    def _move(self, which: int, last: bool) -> bool:
        source = self._sources[which]
        data = source.peek(source.handle, CHUNK)
        if not data:
            return False
        # A progress bar ends its frames with a carriage return, and may not see a line's end for hours.
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
        except OSError:  # the disk is full; what waits here is not lost, it is in the training's own file
            return False
        source.take(data[:written])
        with contextlib.suppress(OSError):
            self._progress.write_bytes(struct.pack("<QQ", *(each.offset for each in self._sources)))
        return True


def pump(master: int, console: int) -> None:
    """Empty a pseudo-terminal into the console's file until its last writer is gone."""
    while True:
        try:
            data = os.read(master, CHUNK)
        except OSError:  # Linux reports the last writer's end as an I/O error
            return
        if not data:
            return
        with contextlib.suppress(OSError):  # a full disk: reading on is what keeps the training alive
            os.write(console, data)
