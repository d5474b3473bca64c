"""Whether there is a terminal, and what it can do."""

from __future__ import annotations

import functools
import os
import select
import signal
import threading
from typing import Protocol, TypeVar

Outcome = TypeVar("Outcome", covariant=True)


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


def open_screen(app: Drawn[Outcome]) -> Outcome:
    """Run `app`, and end with the terminal.

    A hangup is told by signal to the session's leader alone. Where that one waits for us instead of ending (make
    does), the screen would be drawn for ever for a terminal that is gone.
    """
    _watch()
    return app.run()


@functools.cache  # once in a process, however many screens it opens
def _watch() -> None:
    threading.Thread(target=_end_with_the_terminal, name="hangup", daemon=True).start()


def _end_with_the_terminal() -> None:
    gone = select.poll()
    gone.register(0, 0)  # nothing but a hangup or an error wakes it
    gone.poll()
    os.kill(os.getpid(), signal.SIGHUP)
