"""Choose the steps that the device lane times.

Sampling keeps the cost of timing within BUDGET. Never each k-th step: a program that logs each 20th would always or
never be seen logging. Of each block of steps one is timed, at random, and stands for the block. The random numbers come
from a generator of our own; the program's are left alone.
"""

from __future__ import annotations

import math
import os

BUDGET = 0.005  # of the step time, on average
# What is measured around our own calls is less than what they cost: caches are cold afterwards, and a timed step goes
# the slow way through `auto`.
COST_SAFETY_FACTOR = 2.0
FIRST_STEPS = 3  # timed one after the other, to learn what timing costs
MIN_TRIES = 10  # at that, where some cannot be timed
MAX_BLOCK = 1000  # steps
DECAY = 7 / 8  # of what is known of the step time is kept when new steps are added
MAX_UNTIMED_NS = 5_000_000_000  # without a timed step; then a new block is drawn, since steps have changed
MAX_COST_RATIO = 10  # of a step's cost to the mean: above, the thread had to wait for its core
_MASK = (1 << 64) - 1


class Sampling:
    """Choose the steps to time, from what timing costs and how long steps are. Times in nanoseconds."""

    __slots__ = (
        "_cost",
        "_done",
        "_every",
        "_overdue",
        "_random",
        "_rest_of_block",
        "_since",
        "_skip",
        "_steps",
        "_steps_since",
        "_total_ns",
        "_tries",
    )

    def __init__(self) -> None:
        self._random = int.from_bytes(os.urandom(8), "little")
        self._every = 1  # size of the block of the next timed step
        self._skip = 0  # steps until that one
        self._rest_of_block = 0  # steps after it
        self._since = 0  # when the last timed step began, or a new block was drawn
        self._overdue = 0  # how long after that a new block is drawn without a timed step
        self._total_ns = 0.0  # of intervals between timed steps, the older ones decayed; and of their steps
        self._steps = 0.0
        self._steps_since = 0  # steps that began since `_since`
        self._cost = 0.0  # mean of a timed step
        self._done = self._tries = 0

    @property
    def every(self) -> int:
        """Return how many steps the next timed one stands for."""
        return self._every

    def due(self, now: int) -> bool:
        """Return whether the step that begins now is to be timed. Asked once a step; `begins` follows if it is."""
        if not self._skip:
            return True
        if now - self._since > self._overdue:
            self._total_ns = self._steps = 0.0  # the known step time is outdated
            self._add(now)
            self._rest_of_block = 0
            self._draw()
        else:
            self._skip -= 1
        self._steps_since += 1
        return False

    def begins(self, now: int) -> int:
        """Note that a timed step begins. Return how many steps it stands for."""
        every = self._every
        self._add(now)
        self._steps_since += 1
        self._tries += 1
        self._draw()
        return every

    def add_cost(self, cost: int) -> None:
        """Add what a timed step cost the training thread."""
        self._done += 1
        known = self._cost
        if known and self._done > 1:  # else it is the cost of steps that could not be timed
            cost = min(cost, int(MAX_COST_RATIO * known))
        self._cost = known + (cost - known) / min(self._done, 8)

    def add_failure(self, cost: int) -> None:
        """Add the cost of a step that could not be timed: all that is known as long as none can."""
        if not self._done:
            self._cost = max(self._cost, float(cost))

    def _add(self, now: int) -> None:
        """Add the interval up to now and the steps that began in it to what is known of the step time."""
        if self._since:
            self._total_ns = DECAY * self._total_ns + (now - self._since)
            self._steps = DECAY * self._steps + self._steps_since
        self._since = now
        self._steps_since = 0

    def _draw(self) -> None:
        """Choose the next timed step, at random in the next block."""
        step = self._total_ns / max(1.0, self._steps)
        self._every = every = self._block_size(step)
        place = self._below(every)
        self._skip = self._rest_of_block + place
        self._rest_of_block = every - 1 - place
        self._overdue = max(MAX_UNTIMED_NS, int(4 * every * step))

    def _block_size(self, step: float) -> int:
        if (self._done < FIRST_STEPS and self._tries < MIN_TRIES) or not step or not self._cost:
            return 1
        return max(1, min(MAX_BLOCK, math.ceil(COST_SAFETY_FACTOR * self._cost / (BUDGET * step))))

    def _below(self, most: int) -> int:
        """Return a random number from 0 to `most` - 1."""
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self._random >> 33) % most
