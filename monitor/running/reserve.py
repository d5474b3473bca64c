"""Room on the disk for what a training is still to print, taken while there is some.

A training's output goes to a file. On a disk that something else has filled (a checkpoint, a neighbour) its next print
would fail and could end it, which no terminal would have done. So some blocks are kept for the file ahead of its end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

AHEAD = 8 << 20  # bytes for each file: a day of a line a second
MODEST = 16  # at most one part in so many of what is free: the reserve must not fill the disk itself

_KEEP_SIZE = 1


class Reserve:
    """Keeps room for some files that grow. Where the system knows no such thing, it does nothing."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._allocate = _fallocate()
        self._until: dict[int, int] = {}  # a file -> up to where it has room
        for path in paths:
            with contextlib.suppress(OSError):
                self._until[os.open(path, os.O_RDWR | os.O_CLOEXEC)] = 0

    def step(self) -> None:
        """Take more where half of it is used. Never raises: without a reserve all is as it was before."""
        if self._allocate is None:
            return
        for handle, until in self._until.items():
            with contextlib.suppress(OSError):
                size = os.fstat(handle).st_size
                if size + AHEAD // 2 <= until <= size + AHEAD:  # more than that: emptied since, and its room gone
                    continue
                disk = os.fstatvfs(handle)
                ahead = min(AHEAD, disk.f_bavail * disk.f_frsize // MODEST)
                if ahead and self._allocate(handle, _KEEP_SIZE, size, ahead) == 0:
                    self._until[handle] = size + ahead

    def close(self) -> None:
        for handle in self._until:
            os.close(handle)
        self._until = {}


def release(paths: Iterable[Path]) -> None:
    """Give back what was kept for files that grow no more.

    Called when the training has ended. A worker that outlived it and prints between the two calls below would lose
    that print; keeping the blocks of each run for ever would be worse.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(handle, os.fstat(handle).st_size)
            finally:
                os.close(handle)


def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The system's call, which Python offers only in a form that makes the file longer."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Any = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found  # type: ignore[no-any-return]
