"""The time that gpu-check may take, and how its sections share it. Pure but for the clock it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Of the time, where all of these run: each gets its part of what is left when its turn comes.
WEIGHTS = {"driver": 15.0, "lanes": 5.0, "traces": 12.0, "cost": 16.0, "scripts": 64.0, "programs": 20.0}

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    at: float
    clock: Clock = time.monotonic

    def left(self) -> float:
        return self.at - self.clock()

    def over(self, needed: float = 0.0) -> bool:
        return self.left() < needed


class Budget:
    """So many seconds for sections that run one after the other; what one leaves is the others'."""

    def __init__(self, seconds: float, sections: Sequence[str], clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._to_come = list(sections)

    def next(self) -> tuple[str, Deadline]:
        """The section whose turn it is, and when it is to end."""
        section, now = self._to_come[0], self._clock()
        part = WEIGHTS[section] / sum(WEIGHTS[each] for each in self._to_come)
        self._to_come.pop(0)
        return section, Deadline(now + max(0.0, self._end - now) * part, self._clock)

    @property
    def to_come(self) -> int:
        return len(self._to_come)


LONG, SHORT = 9.0, 6.0  # seconds of a watched script: as long as it may be, and as it must be to be judged
TWIN = 0.45  # of that for its twin, which is only measured
START = 3.0  # seconds of a script's turn besides its training, until that was seen


class Pace:
    """How long the scripts may train, from the time that is left and what starting them has cost so far."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._starts: list[float] = []
        self._planned: list[float] = []  # seconds of training of the runs that have not ended

    def plan(self, training: float) -> None:
        """A run is to come, for so many seconds, and its time is taken."""
        self._planned.append(training)

    def took(self, wall: float, training: float) -> None:
        """The oldest run has ended."""
        if self._planned:
            self._planned.pop(0)
        self._starts.append(max(0.0, wall - training))

    @property
    def start(self) -> float:
        """Seconds around a training, the mean so far; the first guess counts as two runs."""
        return (2 * START + sum(self._starts)) / (2 + len(self._starts))

    def seconds(self, watched: int, twins: int) -> float | None:
        """Of the next watched script; None: no time left. So many runs are to come, it and its twin among them."""
        free = self._deadline.left() - sum(self._planned) - len(self._planned) * self.start
        left = free - (watched + twins) * self.start
        wanted = left / (watched + TWIN * twins) if watched else 0.0
        # Where not all can be run, those that are run are worth being judged.
        enough = free >= self.start + SHORT
        return min(LONG, max(SHORT, wanted)) if enough else None
