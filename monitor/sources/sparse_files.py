"""Files whose older part is freed while they grow: it reads as zero bytes, and offsets stay as they are.

A journal's line never begins with a zero byte, so a reader of journals knows the freed part by its first byte.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

FREED = b"\0"
SCAN_BYTES = 1 << 18

# linux/falloc.h
_KEEP_SIZE = 1
_PUNCH_HOLE = 2


def reserve_space(handle: int, begin: int, count: int) -> bool:
    """Reserve disk space for `count` bytes of a file from `begin` on, its size unchanged. False where that fails.

    Args:
        handle: the file, open for writing.
    """
    # Python's posix_fallocate would make the file longer.
    return _fallocate(handle, _KEEP_SIZE, begin, count)


def free_space(path: os.PathLike[str], begin: int, end: int) -> bool:
    """Give back the disk space of a part of a file. False where the file system cannot, or the file is not ours."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _fallocate(handle, _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin)
        finally:
            os.close(handle)
    return False


def used_bytes(path: os.PathLike[str]) -> int:
    """Return the disk space of a file, what is reserved for it included; 0 where it does not exist."""
    try:
        return os.stat(path).st_blocks * 512  # of this size on every system, whatever the disk's
    except OSError:
        return 0


def file_size(path: os.PathLike[str]) -> int:
    """Return the size of a file in bytes, freed parts included; 0 where it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def end_of_freed(handle: int, offset: int) -> int:
    """Return where the zero bytes end that begin at `offset`: the begin of what was kept, or the end of the file.

    Raises:
        OSError: the disk fails.
    """
    while True:
        offset = next_data(handle, offset)
        data = os.pread(handle, SCAN_BYTES, offset)
        kept = data.lstrip(FREED)
        if kept or not data:
            return offset + len(data) - len(kept)
        offset += len(data)


def next_data(handle: int, offset: int) -> int:
    """Return the begin of the next blocks of a file that hold anything; `offset` where the system cannot tell.

    Raises:
        OSError: the disk fails.
    """
    if not hasattr(os, "SEEK_DATA"):
        return offset
    try:
        return os.lseek(handle, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # there are none
            return max(offset, os.fstat(handle).st_size)
        if error.errno == errno.EINVAL:
            return offset
        raise


def _fallocate(handle: int, mode: int, begin: int, count: int) -> bool:
    function = _system_call()
    return function is not None and count > 0 and function(handle, mode, begin, count) == 0


@cache
def _system_call() -> Any:
    """Return the system's fallocate, or None."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Any = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
