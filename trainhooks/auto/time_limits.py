"""Programs that a training starts and that end at their time limit, as answers in a sandbox do.

Only the exception is observed: a call that ends in time costs nothing. A look whether a process has ended yet
(`process.wait(timeout=1)` in a loop) raises the same exception, and is left out.
"""

from __future__ import annotations

import subprocess
import sys
from threading import get_ident
from types import CodeType
from typing import Any, Callable, Set

from trainhooks.auto.instrumentation import framework, harmless, put_facts, replace
from trainhooks.lane_entries import NANOSECOND, host_clock

REPORT_SECONDS = 0.5
MAX_FRAMES = 8  # between `communicate` and the look for it


class TimeLimits:
    """The time limits that were reached by the training thread, which waited for them."""

    def __init__(self) -> None:
        self.hits = 0
        self.seconds = 0.0
        self._reported = 0

    def reached(self, limit: float) -> None:
        """Count one. Seconds."""
        self.hits += 1
        self.seconds += limit
        now = host_clock()
        if now - self._reported >= REPORT_SECONDS * NANOSECOND:
            self._reported = now
            put_facts(time_limit={"hits": self.hits, "seconds": self.seconds, "limit": limit})


limits = TimeLimits()


def watch() -> None:
    """Observe the exceptions of `subprocess`, once."""
    replace(subprocess.TimeoutExpired, "__init__", _made)


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, *args: Any, **kwargs: Any) -> Any:
        original(self, *args, **kwargs)
        harmless(_count, self)

    return ours


def _count(error: Any) -> None:
    tracker = framework.tracker
    if tracker is None or tracker.silent or tracker.thread != get_ident():
        return
    if isinstance(error.timeout, (int, float)) and _is_raised_in(_waits_for_all()):
        limits.reached(float(error.timeout))


def _waits_for_all() -> Set[CodeType]:
    """Return the code of what waits for the end of a process, as `subprocess.run` does, once."""
    return {subprocess.Popen.communicate.__code__, subprocess.call.__code__}


def _is_raised_in(functions: Set[CodeType]) -> bool:
    """Return whether one of the next frames runs one of these functions. No variable of a frame is read."""
    frame = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code in functions:
            return True
    return False
