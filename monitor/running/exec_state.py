"""What a program keeps of its caller through an exec, and loses by the forks between: trainmon hands it over.

A shell's `exec program` leaves ignored signals, running timers and closed descriptors as they are. trainmon's processes
need children's exit codes and open standard streams themselves, and a fork starts without timers.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

INITIAL_ENVIRONMENT = "/proc/self/environ"  # as the caller gave it
COERCED_LOCALE = "LC_CTYPE"  # Python sets it where the locale is C (PEP 538)
MIN_TIMER_SECONDS = 1e-6  # seconds: for a timer that has run out meanwhile; 0 would turn it off

# The timers, and what they send.
_TIMERS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}

were_closed: list[int] = []  # standard streams that were closed when this process started, and are open now


@dataclass(frozen=True)
class ExecState:
    """What the caller left to the program."""

    ignores_children: bool = False  # SIGCHLD is ignored
    timers: tuple[tuple[int, float, float], ...] = ()  # which, seconds left when it was taken, interval
    captured_at: float = 0.0  # time.monotonic()
    closed: tuple[int, ...] = ()  # of the standard streams

    @classmethod
    def capture(cls) -> ExecState:
        """Take what this process has, so that it does not act here."""
        ignores = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignores:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise the kernel discards exit codes
        timers = [(which, *signal.setitimer(which, 0.0)) for which in _TIMERS]
        running = tuple(timer for timer in timers if timer[1])
        return cls(ignores, running, time.monotonic(), tuple(were_closed))

    @property
    def is_special(self) -> bool:
        """Return whether there is something to restore."""
        return self.ignores_children or bool(self.timers)

    def restore(self) -> None:
        """Give it to this process, which becomes the program. Closed streams are left to the exec."""
        if self.ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for which, left, interval in self.timers:
            # One that runs out before the exec ends the process as it would end the program. A handler would take it.
            if signal.getsignal(_TIMERS[which]) is not signal.SIG_IGN:
                signal.signal(_TIMERS[which], signal.SIG_DFL)
            passed = time.monotonic() - self.captured_at if which == signal.ITIMER_REAL else 0.0
            signal.setitimer(which, max(MIN_TIMER_SECONDS, left - passed), interval)


def drop_coerced_locale() -> None:
    """Take the locale that this interpreter chose for itself out of the environment: the program chooses its own."""
    if COERCED_LOCALE not in os.environ:
        return
    try:
        with open(INITIAL_ENVIRONMENT, "rb") as file:
            given = file.read()
    except OSError:
        return
    if not any(line.startswith(COERCED_LOCALE.encode() + b"=") for line in given.split(b"\0")):
        del os.environ[COERCED_LOCALE]
