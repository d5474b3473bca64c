"""Descriptors that the caller of trainmon passes to the program: no process of trainmon keeps a copy.

The reader of a pipe learns that its writer has ended when the last copy is closed. So once the program has its own, the
front and the supervisor close theirs, and a close by the program is the last one, as without trainmon.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat

STANDARD = 2  # the highest number that every program expects
DIRECTORIES = ("/proc/self/fd", "/dev/fd")


def release() -> None:
    """Close what the caller of this process passed on beyond stdin, stdout and stderr.

    Python opens every descriptor of its own so that a started program does not get it; what would be passed on to one
    has come from the caller.
    """
    for number in _open_numbers():
        with contextlib.suppress(OSError):
            if number > STANDARD and os.get_inheritable(number):
                os.close(number)


def _open_numbers() -> list[int]:
    for directory in DIRECTORIES:
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(directory) if name.isdecimal()]
    return []


def release_standard(number: int) -> None:
    """Give up this process's copy of stdin or stdout. The number stays taken, so nothing else gets it."""
    nothing = open_nothing()
    os.dup2(nothing, number)
    os.close(nothing)


def open_nothing() -> int:
    """Return a descriptor that gives nothing and takes what nobody reads: /dev/null, which a jail may lack."""
    try:
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("nothing")
        raise


def is_pipe(number: int) -> bool:
    """Return whether a descriptor has a reader that waits for its end: a pipe or a socket."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def is_written(handle: int) -> bool:
    """Return whether any process has the file open for writing; True where the system cannot tell.

    Linux grants a lease for reading only on a file that nobody has open for writing. It is given back at once.

    Args:
        handle: the file, open for reading only.
    """
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # does nothing; the default would end this process
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except (OSError, AttributeError):  # somebody has; or no such file system or system
        return True
    fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def tells_writers(path: os.PathLike[str], handle: int) -> bool:
    """Return whether `is_written` sees a writer of this file: a network file system may know of none."""
    try:
        writer = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return is_written(handle)
    finally:
        os.close(writer)
