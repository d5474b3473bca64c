"""For how long the device certainly had work in its queue, and how far it was behind the host. Pure."""

from __future__ import annotations

from collections import deque
from typing import Deque, List, NamedTuple, Optional, Tuple

SLACK = 300_000  # nanoseconds: what the two clocks' distance is not known any better than
# The clocks drift apart by up to some 50 millionths of the time: over this long by less than SLACK.
WINDOW = 5_000_000_000  # nanoseconds
DRIFT = 5e-5
MAX_KEPT = 256  # distances
OLDEST = 600_000_000_000  # nanoseconds


class Work(NamedTuple):
    """A step's work, in nanoseconds.

    Attributes:
        certain: begins and ends, since the device's begin of the step, of what was certainly in its queue.
        lag: how far the device was behind the host where that was most.
        passed: when the host made each mark, and up to when, by the host's clock, the device was certainly not past it.
    """

    certain: List[Tuple[int, int]]
    lag: int
    passed: List[Tuple[int, int]]

    def is_certain_at(self, t: int) -> bool:
        """Whether the queue certainly held work at this time of the host's clock."""
        return any(here <= t < until for here, until in self.passed)


class Queue:
    """Follows one device, step by step.

    The device comes by a mark after the host has made it; how much later is the work that was queued by then, but for
    the distance of the two clocks' zeros. The least that was seen is taken for it: an overestimate, where the device
    was never seen to wait for the host, so that what is certain is never too much.
    """

    def __init__(self) -> None:
        self._zero = 0  # on the device's clock: when the step before began
        self._least: Deque[Tuple[int, int]] = deque()  # host time; the device's time minus the host's

    def work(self, host: List[int], device: List[int], sides: Tuple[int, ...], gap: Optional[int]) -> Work:
        """What is certain of a step.

        Args:
            host, device: when each mark was made, and when the device came by; the device's from 0 on.
            sides: places of marks on another stream, which tell nothing of the lane's own queue.
            gap: from the begin of the step before to this one's, by the device; None: not known.
        """
        if gap is None:
            self._least.clear()
        self._zero += gap or 0
        own = [(here, there) for place, (here, there) in enumerate(zip(host, device)) if place not in sides]
        distance = self._distance(own) - self._zero  # of the step's own begin on the device
        certain, lag, upto = [], 0, 0
        passed = []
        for here, there in own:
            behind = there - here - distance
            lag = max(lag, behind)
            begin, until = max(here + distance, upto), min(there - SLACK, device[-1])
            if until > begin:
                certain.append((begin, until))
                upto = until
            if behind > SLACK:
                passed.append((here, here + behind - SLACK))
        return Work(certain, lag if lag >= SLACK else 0, passed)

    def _distance(self, own: List[Tuple[int, int]]) -> int:
        """The device's clock minus the host's, at most."""
        least, now = self._least, own[-1][0]
        found = min(self._zero + there - here for here, there in own)
        while least and least[-1][1] >= found:
            least.pop()
        least.append((now, found))
        while len(least) > MAX_KEPT or least[0][0] < now - OLDEST:
            least.popleft()
        return min(each + int(max(0, now - t - WINDOW) * DRIFT) for t, each in least)
