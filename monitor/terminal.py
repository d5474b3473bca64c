"""Whether there is a terminal, and what it can do."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

Outcome = TypeVar("Outcome", covariant=True)

OPENING_SECONDS = 0.1  # between looks whether a screen is open that is to be closed


class Drawn(Protocol[Outcome]):
    """A program that takes the whole screen."""

    def run(self) -> Outcome: ...


def can_draw() -> bool:
    """Whether a screen can be shown: keys come from a terminal, all output goes to one, and it can draw."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        if not all(os.isatty(handle) for handle in (0, 1, 2)):
            return False
        return os.tcgetpgrp(0) == os.getpgrp()  # in the background (`&`) a program that reads keys is stopped
    except OSError:
        return False


def open_screen(app: Drawn[Outcome], leave: Callable[[], None] | None = None) -> Outcome:
    """Run `app`, and end with the terminal.

    A hangup is told by signal to the session's leader alone. Where that one waits for us instead of ending (make
    does), the screen would be drawn for ever for a terminal that is gone.

    Args:
        leave: for a process that has to outlive its terminal: closes the screen, from another thread, or raises
            RuntimeError as long as there is none.
    """
    _watch(leave)
    return app.run()


@functools.cache  # once in a process, however many screens it opens
def _watch(leave: Callable[[], None] | None) -> None:
    threading.Thread(target=_end_with_the_terminal, args=(leave,), name="hangup", daemon=True).start()


def _end_with_the_terminal(leave: Callable[[], None] | None) -> None:
    gone = select.poll()
    gone.register(0, 0)  # nothing but a hangup or an error wakes it
    gone.poll()
    if leave is None:
        os.kill(os.getpid(), signal.SIGHUP)
        os._exit(128 + signal.SIGHUP)  # the signal is ignored: after nohup, or in the first process of a container
    while True:
        with contextlib.suppress(RuntimeError):
            return leave()
        time.sleep(OPENING_SECONDS)
