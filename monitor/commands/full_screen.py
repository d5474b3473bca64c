"""Full-screen programs, which end with their terminal."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    pass


Outcome = TypeVar("Outcome", covariant=True)

CLOSE_RETRY_SECONDS = 0.1  # between attempts to close a screen that is not open yet


class FullScreenApp(Protocol[Outcome]):
    """A full-screen program."""

    def run(self) -> Outcome: ...


def can_draw() -> bool:
    """Return whether a screen can be shown: stdin, stdout and stderr are a capable terminal, in the foreground."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        if not all(os.isatty(handle) for handle in (0, 1, 2)):
            return False
        return os.tcgetpgrp(0) == os.getpgrp()  # in the background (`&`) a program that reads keys is stopped
    except OSError:
        return False


def open_screen(app: FullScreenApp[Outcome], leave: Callable[[], None] | None = None) -> Outcome:
    """Run `app` and return its result; end the process when the terminal closes.

    Only the session's leader gets the signal of a hangup. If that one waits for its child instead of ending, as make
    does, the screen would otherwise be drawn forever without a terminal.

    Args:
        leave: for a process that outlives its terminal: called from another thread to close the screen; it raises
            RuntimeError as long as no screen is open.
    """
    _watch_terminal(leave)
    return app.run()


@cache  # once in a process, however many screens it opens
def _watch_terminal(leave: Callable[[], None] | None) -> None:
    threading.Thread(target=_end_with_the_terminal, args=(leave,), name="hangup", daemon=True).start()


def _end_with_the_terminal(leave: Callable[[], None] | None) -> None:
    gone = select.poll()
    gone.register(0, 0)  # nothing but a hangup or an error wakes it
    gone.poll()
    if leave is None:
        os.kill(os.getpid(), signal.SIGHUP)
        os._exit(128 + signal.SIGHUP)  # the signal is ignored: after nohup, or in the first process of a container
    while True:
        with suppress(RuntimeError):
            return leave()
        time.sleep(CLOSE_RETRY_SECONDS)
