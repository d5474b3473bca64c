"""What the GPU clock told of the steps, in bounded memory. Pure.

It tells of most steps, and of each some time after the step itself; so these are means of their own, beside the
host's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model.parts import OTHER
from trainhooks.events import OVERFLOW, GpuTime

MAX_PHASES = 200  # names that get a row of their own, as for the host's times


@dataclass(slots=True)
class GpuSum:
    """The seconds of a phase on the GPU, over the steps in which it occurs."""

    seconds: float = 0.0
    steps: int = 0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.steps += 1

    def mean(self) -> float | None:
        return self.seconds / self.steps if self.steps else None


@dataclass(slots=True)
class GpuTimes:
    phases: dict[str, GpuSum] = field(default_factory=dict)
    seconds: float = 0.0  # of the steps that tell for how much of them there was work
    busy: float = 0.0  # of these, at least
    steps: int = 0
    dropped: int = 0  # steps that could not be timed, of one process

    def take(self, event: GpuTime) -> None:
        self.dropped = max(self.dropped, event.dropped)
        if not event.seconds:
            return
        self.steps += 1
        if event.busy is not None:
            self.seconds += event.seconds
            self.busy += min(event.busy, event.seconds)
        named = 0.0
        for name, seconds in event.phases:
            named += seconds
            self._sum(name).add(seconds)
        self._sum(OTHER).add(max(0.0, event.seconds - named))

    def mean(self, phase: str) -> float | None:
        """Seconds a step; None where the clock told nothing of it."""
        found = self.phases.get(phase)
        return None if found is None else found.mean()

    def busy_share(self) -> float | None:
        """The share of the steps in which the GPU had work in its queue, at least; None where that is not known."""
        return self.busy / self.seconds if self.seconds > 0.0 else None

    def _sum(self, name: str) -> GpuSum:
        if name not in self.phases and len(self.phases) >= MAX_PHASES:
            name = OVERFLOW
        return self.phases.setdefault(name, GpuSum())
