"""The way to the terminal: how much goes over it, and when the next picture may.

A link has a budget of bytes; and where it is slower still, no picture is sent before the one before has arrived: what
stands on screen may be old, but nothing older is on its way.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from math import inf
from typing import IO, Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

BUSY_LINK = 5_600.0  # bytes a second: at most 6 KB/s with what cursor and synchronisation cost
SLOW_LINK = 1_350.0  # with --low-bandwidth: at most 1.5 KB/s
SAVED = 2.0  # seconds of the budget that a quiet spell may save up
OWED = 4.0  # seconds of the budget that can be owed: a key's answer, and a first picture, are sent whatever they take
# Seconds of the budget that a picture costs which is far bigger than the usual ones, as the first: who has opened a
# screen is not made to wait for the next one. Where a link is said to be slow, it costs all that it is.
ONCE = 1.0
USUAL = 10  # pictures, the middle of which is a usual one
NO_PICTURE = 32  # bytes: a question to the terminal, or the cursor
LOOK_AGAIN = 0.1  # seconds until the next look at a link that is still busy
GIVE_UP = 10.0  # seconds after which an answer does not come any more
INSTANT = 0.001  # seconds that are not worth a timer
ASK = "\x1b[?2026$p"  # "do you know synchronised output?": terminals answer in turn, so the answer says what arrived


class Budget:
    """Bytes a second, on average over some seconds. Pure: the moments are passed in.

    Args:
        once: seconds of it that a single big picture costs at most.
    """

    def __init__(self, bytes_per_second: float, now: float, once: float = ONCE) -> None:
        self._rate, self._once = bytes_per_second, once
        self._left = bytes_per_second * SAVED
        self._at = now
        self._counted = 0
        self._costs = deque([0.0] * USUAL, maxlen=USUAL)

    def wait(self, now: float, sent: int) -> float:
        """Seconds until another picture is affordable, when so many bytes have been sent in all."""
        earned, cost = (now - self._at) * self._rate, float(sent - self._counted)
        if cost > NO_PICTURE:
            self._costs.append(cost)
            cost = min(cost, max(self._rate * self._once, sorted(self._costs)[USUAL // 2]))
        self._left = max(min(self._left + earned, self._rate * SAVED) - cost, -self._rate * OWED)
        self._at, self._counted = now, sent
        wait = -self._left / self._rate
        return wait if wait > INSTANT else 0.0


class _Counting:
    """A file that says how many bytes it was given, once they are written. A terminal that is gone takes nothing."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.written = 0

    def write(self, text: str) -> None:
        with suppress(OSError):  # Textual waits for the thread that writes, even if that one has died of this
            self._file.write(text)
            self._file.flush()
        self.written += len(text.encode("utf-8", "replace"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class LinkDriver(LinuxDriver):
    """Textual's own driver, that knows how much it was given to send and how much of it is sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given = 0
        self._counting = _Counting(self._file)
        self._file: Any = self._counting

    def write(self, data: str) -> None:
        self.given += len(data.encode("utf-8", "replace"))
        super().write(data)

    @property
    def waiting(self) -> int:
        """Bytes that the terminal has not taken yet."""
        return self.given - self._counting.written


class Pacer:
    """Says when the next picture may be drawn. Where there is no terminal to count for, always."""

    def __init__(self, slow: bool) -> None:
        self._terms = (SLOW_LINK, inf) if slow else (BUSY_LINK, ONCE)
        self._budget: Budget | None = None
        self._asked: float | None = None  # when the terminal was asked, while it owes an answer

    def wait(self, driver: Driver | None) -> float:
        """Seconds until it makes sense to draw, or to ask again; 0 for now."""
        if not isinstance(driver, LinkDriver):
            return 0.0
        now = time.monotonic()
        if self._budget is None:
            rate, once = self._terms
            self._budget = Budget(rate, now, once)
        unaffordable = self._budget.wait(now, driver.given)
        owes = self._asked is not None and now - self._asked < GIVE_UP
        return max(unaffordable, LOOK_AGAIN if driver.waiting or owes else 0.0)

    def ask(self, driver: Driver | None) -> None:
        """Behind a picture: have the terminal say when it has come to here."""
        if isinstance(driver, LinkDriver):
            driver.write(ASK)
            self._asked = time.monotonic()

    def answered(self) -> None:
        self._asked = None
