"""Programs that a training starts, as answers in a sandbox: the wait for them, and those that reach their time limit.

While the training thread waits for one between what it generates and the update by it, that is the phase `execution`,
wherever the program computes log-probabilities. Of a time limit only the exception is observed. A look whether a
process has ended yet (`process.wait(timeout=1)` in a loop) raises the same exception, and is left out.
"""

from __future__ import annotations

import subprocess
import sys
from _thread import allocate_lock
from threading import get_ident
from types import CodeType
from typing import Any, Callable, Set

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import call_safely, framework, own_tracker, phase, put_facts, wrap
from trainhooks.lane_entries import NANOSECOND, host_clock

REPORT_INTERVAL = 0.5
MAX_CALLER_FRAMES = 8  # between `communicate` and the look for it


class TimeLimits:
    """The time limits that programs reached, in any thread, and the time in which at least one was waited for.

    Attributes:
        own: how many the training thread itself waited for.
    """

    def __init__(self) -> None:
        self.hits = self.own = 0
        self.seconds = 0.0
        self._until = self._reported = 0  # on the host's clock
        self._lock = allocate_lock()  # of the thread that counts: no other one waits for it, nor a forked process

    def add(self, limit: float, is_own: bool) -> None:
        """Count one, in seconds, as it is reached."""
        if not self._lock.acquire(False):
            return  # two threads at once: one of them is enough
        try:
            now = host_clock()
            self.hits += 1
            self.own += is_own
            self.seconds += (now - max(self._until, now - int(limit * NANOSECOND))) / NANOSECOND
            self._until = now
            if now - self._reported >= REPORT_INTERVAL * NANOSECOND:
                self._reported = now
                table = {"hits": self.hits, "own": self.own, "seconds": self.seconds, "limit": limit}
                put_facts(time_limit=table)
        finally:
            self._lock.release()


limits = TimeLimits()
_waits_for_all: Set[CodeType] = set()  # the code of what waits for the end of a process, as `subprocess.run` does, once


def watch_subprocess() -> None:
    """Observe the waits and the exceptions of `subprocess`, once."""
    _waits_for_all.update((subprocess.Popen.communicate.__code__, subprocess.call.__code__))
    wrap(subprocess.TimeoutExpired, "__init__", _made)
    for name in ("communicate", "wait"):
        wrap(subprocess.Popen, name, _waits)


def _waits(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tracker = framework.tracker
        try:
            if tracker is None or not tracker.generated or own_tracker() is None:
                return original(*args, **kwargs)
            with phase("execution"):
                return original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        original(self, *args, **kwargs)
        call_safely(_count, self)

    return wrapper


def _count(error: Any) -> None:
    tracker = framework.tracker
    if tracker is None or tracker.silent:
        return
    if isinstance(error.timeout, (int, float)) and _is_raised_in(_waits_for_all):
        limits.add(float(error.timeout), tracker.thread == get_ident())


def _is_raised_in(functions: Set[CodeType]) -> bool:
    """Return whether one of the next frames runs one of these functions. No variable of a frame is read."""
    frame = sys._getframe(1)
    for _ in range(MAX_CALLER_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code in functions:
            return True
    return False
