"""When the lines of an output came, as far as somebody was there to see it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left

from monitor.sources.console import LINES

KEPT = LINES  # looks at the output: each saw a new line at least, and older ones are no longer on any screen


class Arrivals:
    """Lines are numbered from 1. What was there at the first look came before it, nobody knows when."""

    def __init__(self) -> None:
        self._seen: list[int] = []  # lines there were in all, at each look that saw new ones
        self._times: list[float] = []

    def of(self, lines: int, seen: int, now: float) -> tuple[float, ...]:
        """When each of the newest `lines` of `seen` was first seen; nan where that is unknown."""
        if self._seen and seen < self._seen[-1]:  # the file was begun anew
            self._seen, self._times = [], []
        if not self._seen or seen > self._seen[-1]:
            self._times.append(now if self._seen or not seen else math.nan)
            self._seen.append(seen)
            if len(self._seen) > KEPT:
                del self._seen[0], self._times[0]
        return tuple(self._times[bisect_left(self._seen, number)] for number in range(seen - lines + 1, seen + 1))
