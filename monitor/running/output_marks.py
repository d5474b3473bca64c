"""Notes of when the training's output grew, and which of its two streams wrote it, for readers of the console file.

Where both streams go to one file, the program has it open twice. Each write moves the position of the one that it went
through, so both positions tell who has written since the last look, with no part of trainmon between program and file.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from monitor.sources.console_marks import EITHER, MARK, NAME, STDERR, STDOUT, span
from trainhooks.protocol import rundir

MARKS_WITH_STREAMS = 1 << 17  # marks after which the streams are not told apart any more


class OutputMarks:
    """Write the marks of a run's output. Nothing is raised: a full disk leaves times unknown."""

    def __init__(self, run: Path, streams: tuple[int, int] | None = None) -> None:
        """
        Args:
            streams: descriptors of the console file that the program has as stdout and stderr; None: not known.
        """
        self._console, self._path = run / rundir.CONSOLE, run / NAME
        self._streams = streams
        self._written = {STDOUT: 0, STDERR: 0}  # where the last write of each ended
        self._handle: int | None = None  # None: nothing was written yet, by this or a process before it
        self._count = 0
        self._last: tuple[float, int, int] = (0.0, 0, EITHER)
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._handle = handle
            self._count = os.fstat(handle).st_size // MARK.size
            if self._count:
                self._last = MARK.unpack(os.pread(handle, MARK.size, (self._count - 1) * MARK.size))

    def step(self) -> None:
        """Look whether the output has grown."""
        with contextlib.suppress(OSError):
            size = os.stat(self._console).st_size
            if size == self._last[1]:
                return
            if self._streams is None or size < self._last[1]:
                self.add(size, EITHER)
                return
            ends = self._ends()
            moved = [stream for stream in (STDOUT, STDERR) if ends[stream] != self._written[stream]]
            self._written, newest = ends, max(ends[STDOUT], ends[STDERR])
            if newest < size or not moved or ends != self._ends():  # another process opened it, or writes right now
                self.add(max(newest, size), EITHER)
                return
            if len(moved) == 2:  # only what comes after the other's last write is known
                self.add(min(ends[STDOUT], ends[STDERR]), EITHER)
            self.add(newest, STDOUT if ends[STDOUT] == newest else STDERR)

    def _ends(self) -> dict[int, int]:
        """Return where the last write of each stream ended."""
        assert self._streams is not None
        return {
            stream: os.lseek(handle, 0, os.SEEK_CUR)
            for stream, handle in zip((STDOUT, STDERR), self._streams, strict=True)
        }

    def add(self, end: int, stream: int) -> None:
        """Note that the output now ends at a byte of the console file, and who wrote what is new."""
        now = time.monotonic()
        began, before, known = self._last
        seconds = span(self._count - 1)
        stream = stream if self._count < MARKS_WITH_STREAMS else EITHER
        goes_on = self._count > 0 and known == stream and now - began < seconds and end >= before
        mark = (began if goes_on else now, end, stream)
        with contextlib.suppress(OSError):
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, MARK.pack(*mark), (self._count - goes_on) * MARK.size)
            self._count += not goes_on
            self._last = mark

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
