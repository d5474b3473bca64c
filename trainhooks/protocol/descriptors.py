"""Descriptors that trainmon keeps open in a process that is not its own.

A program may close any number, as code that makes a daemon does with `os.closerange`, and get it again for a file of
its own. So a kept descriptor is checked before it is used, and a number that is the program's now is never closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from pathlib import Path
from typing import Optional, Tuple, Union

STANDARD = 2  # the highest number that means something to every program
HIGH = 960  # below the 1,024 that a program may have by default, above what programs close or count
SPARE = 16  # left to a program that has few: it needs them more than sockets of ours
MARGIN = 64  # numbers between the lowest that is taken and the limit, where the limit is low

Identity = Tuple[int, int]


class Kept:
    """An open descriptor under a high number, known by its device and inode.

    Attributes:
        number: the descriptor.

    Raises:
        OSError: no number is free. The descriptor is closed then.
    """

    def __init__(self, descriptor: int, path: Optional[Path] = None) -> None:
        """
        Args:
            descriptor: is taken over; its number changes.
            path: of the open file, if it is one.
        """
        self.number = _raised(descriptor)
        self._path = path
        self._identity = identity_of(self.number)

    def is_ours(self) -> bool:
        """Return whether the number still is what was opened."""
        try:
            now = identity_of(self.number)
            if now == self._identity:
                return True
            # Some network file systems number an open file anew: it is the program's only if it is another file.
            if self._path is None or now != identity_of(self._path):
                return False
        except OSError:
            return False
        self._identity = now
        return True

    def close(self) -> None:
        """Close the descriptor, unless the program has closed it: the number may be the program's now."""
        if self.is_ours():
            with contextlib.suppress(OSError):
                os.close(self.number)


def kept_with_room(descriptor: int) -> Kept:
    """Return a new descriptor as kept, where the program has some left.

    Raises:
        OSError: it has few. The descriptor is closed then.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and descriptor >= limit - SPARE:  # the lowest number that was free
        os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return Kept(descriptor)


def identity_of(place: Union[int, Path]) -> Identity:
    found = os.stat(place)
    return found.st_dev, found.st_ino


def _raised(descriptor: int) -> int:
    """Move a descriptor to a high number: the program's own are numbered as without trainmon."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = HIGH if limit == resource.RLIM_INFINITY else max(STANDARD + 1, min(HIGH, limit - MARGIN))
    try:
        raised = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        if descriptor > STANDARD:
            return descriptor
        os.close(descriptor)  # the program has closed its output: what it prints must not go into our file
        raise
    os.close(descriptor)
    return raised
