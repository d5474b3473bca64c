"""The process group that a training starts in: led by the program, or not, as it would be without trainmon.

A shell with job control makes a program the leader of its process group, a script does not. Some programs ask:
setsid(1) forks and returns at once where it leads a group, and becomes the command where it does not. trainmon gives
the training a session of its own either way, so that signals reach the training and nobody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ADOPTION_CHECK_SECONDS = 0.0005
_PR_SET_CHILD_SUBREAPER = 36

Start = Callable[..., "subprocess.Popen[Any]"]

# Kept for good: where a Popen is dropped, it takes the exit status of a child that has ended, and nobody sees it.
_started: list[subprocess.Popen[Any]] = []


def leads() -> bool:
    """Return whether this process leads its group: then the program would, too, in its place."""
    return os.getpgrp() == os.getpid()


def become_subreaper(wanted: bool = True) -> bool:
    """Ask to become the parent of descendants whose own parent ends (Linux). Return whether that was granted."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def start_leader(start: Start, begin: Callable[[], None] | None = None) -> int:
    """Start a child that leads a session of its own. Return its pid.

    Args:
        start: calls `subprocess.Popen` with what it is given.
        begin: is called in the child before the program begins. No other thread may run then.

    Raises:
        OSError: the program cannot be started.
    """
    _started.append(start(start_new_session=True, preexec_fn=begin))
    return _started[-1].pid


def start_member(start: Start, begin: Callable[[], None] | None = None) -> int:
    """Start a child in a new session whose leader it is not. Return its pid.

    The process that makes the session ends before the program begins, and the child becomes this process's own. A
    session and a group keep their number, and nobody else gets it, as long as they have members.

    Args:
        start: calls `subprocess.Popen` with what it is given. No other thread may run.
        begin: is called in the child before the program begins.

    Raises:
        OSError: the program cannot be started.
    """
    if not become_subreaper():
        return start_leader(start, begin)
    reading, writing = os.pipe()
    try:
        try:
            leader = start(preexec_fn=lambda: _leave_leader(writing, begin))
        except subprocess.SubprocessError:  # what failed in the forked process has lost its number
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        leader.wait()
        os.close(writing)
        writing = -1
        message = os.read(reading, 32)
    finally:
        become_subreaper(False)  # orphans of the training go where they would go anyway
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    if not message:
        raise OSError(errno.EINTR, "the process that starts it was killed")
    return int(message)


def _leave_leader(writing: int, begin: Callable[[], None] | None) -> None:
    """Make a session, and go on in a child that is a plain member of it."""
    os.setsid()
    leader = os.getpid()
    if os.fork():
        os._exit(0)
    os.write(writing, b"%d" % os.getpid())
    while os.getppid() == leader:  # the program must not see its parent change: some take that for its death
        time.sleep(ADOPTION_CHECK_SECONDS)
    if begin is not None:
        begin()


def of_training(pid: int, started: int | None) -> int | None:
    """Return the process group to signal for a training that trainmon launched; None: only the process itself.

    Args:
        started: the group in which it was started, as recorded. A training that nobody launched may share its group
            with the shell that it was started from.
    """
    with contextlib.suppress(ProcessLookupError):
        group = os.getpgid(pid)
        return group if group in (pid, started) and group != os.getpgrp() else None
    return None
