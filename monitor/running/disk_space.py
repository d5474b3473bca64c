"""Disk space reserved for a training's output.

A training's output goes to a file. On a full disk its next print would fail and could end it, which a terminal would
not do. So some blocks are reserved beyond the end of the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from monitor.sources import sparse_files

PREALLOCATED_BYTES = 8 << 20  # bytes per file: a day of one line per second
MAX_FREE_SHARE = 16  # at most 1/16 of the free space: the reserve itself must not fill the disk


class Preallocation:
    """Reserve disk space for growing files. Does nothing where the system has no fallocate."""

    def __init__(self, paths: Iterable[Path]) -> None:
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
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return sparse_files.reserve_space(handle, size, ahead)
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
