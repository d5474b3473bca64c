"""Which steps the device lane times, so that it costs BUDGET of the step time on average.

Never each k-th step: a program that logs each 20th would always or never be seen logging. Of each block of `every`
steps one is timed, at random, and stands for the block. The numbers come from a generator of our own; the program's
are left alone.
"""

from __future__ import annotations

import math
import os

BUDGET = 0.005  # of the step time, on average
# What is measured around our own calls is less than what they cost: caches are cold afterwards, and a timed step goes
# the slow way through `auto`.
SAFETY = 2.0
FIRST = 3  # steps that are timed one after the other, and enough tries for them where some cannot be timed
TRIES = 10
MOST = 1000  # steps of a block
KEEP = 7 / 8  # of what is known of the step time stays when a stretch of steps is added
OVERDUE = 5_000_000_000  # nanoseconds without a timed step after which the block is looked at again: steps have changed
OUTLIER = 10  # times the usual cost; what is above was a thread that had to wait for its core
_MASK = (1 << 64) - 1


class Sampling:
    """Learns what a timed step costs and how long steps are, and says which ones to time. Times in nanoseconds."""

    __slots__ = (
        "_cost",
        "_count",
        "_done",
        "_every",
        "_number",
        "_overdue",
        "_rest",
        "_since",
        "_skip",
        "_steps",
        "_sum",
        "_tries",
    )

    def __init__(self) -> None:
        self._number = int.from_bytes(os.urandom(8), "little")
        self._every = 1  # of the block that the next timed step stands for
        self._skip = 0  # steps until that one
        self._rest = 0  # steps of its block that come after it
        self._since = 0  # when the last timed step began, or the block was looked at again
        self._overdue = 0  # how long after that the block is looked at again
        self._sum = 0.0  # of stretches, the older ones less and less; and of their steps
        self._steps = 0.0
        self._count = 0  # steps that began since then
        self._cost = 0.0
        self._done = self._tries = 0

    @property
    def every(self) -> int:
        """How many steps the next timed one stands for."""
        return self._every

    def due(self, now: int) -> bool:
        """Whether the step that begins now is to be timed. To be asked once a step; and then `begins`, if it is."""
        if not self._skip:
            return True
        if now - self._since > self._overdue:
            self._sum = self._steps = 0.0  # what was known does not hold any more
            self._add(now)
            self._rest = 0
            self._draw()
        else:
            self._skip -= 1
        self._count += 1
        return False

    def begins(self, now: int) -> int:
        """A timed step begins. Returns how many it stands for."""
        every = self._every
        self._add(now)
        self._count += 1
        self._tries += 1
        self._draw()
        return every

    def costs(self, cost: int) -> None:
        """What a step that was timed, and could be, cost the thread that trains."""
        self._done += 1
        known = self._cost
        if known and self._done > 1:  # else it is that of steps that could not be timed
            cost = min(cost, int(OUTLIER * known))
        self._cost = known + (cost - known) / min(self._done, 8)

    def fails(self, cost: int) -> None:
        """What a step cost that was to be timed and could not be: all that is known, as long as none can."""
        if not self._done:
            self._cost = max(self._cost, float(cost))

    def settle(self, nanoseconds: int) -> None:
        """No step is timed for so long: the ones that come are not as usual, and stand for none."""
        self._skip += math.ceil(nanoseconds * max(1.0, self._steps) / self._sum) if self._sum else 1

    def _add(self, now: int) -> None:
        """The stretch up to now, and the steps that began in it, to what is known of the step time."""
        if self._since:
            self._sum = KEEP * self._sum + (now - self._since)
            self._steps = KEEP * self._steps + self._count
        self._since = now
        self._count = 0

    def _draw(self) -> None:
        """The place of the next timed step: in the next block, wherever in it."""
        step = self._sum / max(1.0, self._steps)
        self._every = every = self._wanted(step)
        place = self._below(every)
        self._skip = self._rest + place
        self._rest = every - 1 - place
        self._overdue = max(OVERDUE, int(4 * every * step))

    def _wanted(self, step: float) -> int:
        if (self._done < FIRST and self._tries < TRIES) or not step or not self._cost:
            return 1
        return max(1, min(MOST, math.ceil(SAFETY * self._cost / (BUDGET * step))))

    def _below(self, most: int) -> int:
        """A number from 0 to `most` - 1; the user's generators are none of ours."""
        self._number = (self._number * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self._number >> 33) % most
