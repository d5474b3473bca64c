"""Passes over the training's loader, and the planned steps that follow from them and the program's arguments. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trainhooks.protocol.events import Step
from trainhooks.protocol.facts import RunFacts

FETCH = "data"  # the phase whose count is the batches of a step
LATEST = 9  # steps by which the batches a step are known


@dataclass(slots=True)
class Passes:
    """What a producer reported of the passes and the plan; steps are those done since it began."""

    number: int = 0  # of the newest pass, from 1
    peeked: int = 0  # passes in which no step was made: a batch that was looked at
    batches: int | None = None  # of a pass
    began: int = 0  # steps done before the newest pass
    measured: float | None = None  # steps of a whole pass
    epochs: int | None = None  # planned
    steps: int | None = None  # planned, as an argument names them
    updates: int | None = None  # optimizer steps that the program's loops make
    is_late: bool = False  # whether the newest pass was not reported at its begin

    def take(self, facts: RunFacts, done: int) -> None:
        """Take the facts `passes` and `plan`, reported after `done` steps."""
        plan, passes = facts.plan, facts.passes
        if plan is not None:
            self.epochs, self.steps, self.updates = plan.epochs or None, plan.steps or None, plan.updates or None
        if passes is None or not passes.number:
            return
        number = passes.number
        if number <= self.peeked:  # of another process, or another loop over the same loader
            self.peeked = 0
        number -= self.peeked
        if passes.late and number > self.number:
            self.is_late = self.measured is None  # else its begin follows from the passes before
            self.began += round(self.measured or 0.0) * (number - self.number)
            self.number = number
            return
        self.is_late = False
        if self.number and number > self.number and done == self.began:
            self.peeked += number - self.number
            return
        if self.number and number > self.number:
            self.measured = (done - self.began) / (number - self.number)
        elif number < self.number:  # as above
            self.measured = None
        # The first pass is reported in the first step, once that has shown which loader is the training's.
        self.began = done - 1 if number == 1 and done == 1 else done
        self.number, self.batches = number, passes.batches or None

    def newest(self, done: int) -> int:
        """Return the number of the newest pass in which a step was made; in a later one a batch may be looked at."""
        return self.number - 1 if self.number > 1 and done == self.began else self.number

    def position(self, done: int, latest: Sequence[Step]) -> tuple[int, int] | None:
        """Return the batch within the newest pass, and the batches of a pass; None where that is unknown."""
        a_step = _batches_a_step(latest)
        if not self.number or self.is_late or self.batches is None or a_step is None or not self._fits(a_step):
            return None
        if self.newest(done) < self.number:
            return self.batches, self.batches
        return min(self.batches, round((done - self.began) * a_step)), self.batches

    def total(self, done: int, latest: Sequence[Step], epochs: int | None = None) -> int | None:
        """Return the planned steps; None where they are unknown, or what was done contradicts the plan.

        Args:
            epochs: planned, where the program's arguments do not say so.
        """
        a_step = _batches_a_step(latest)
        total = None
        if self.updates is not None:
            total = self.updates
        elif self.steps is not None and a_step in (None, 1):  # with several batches a step, it may count either
            total = self.steps
        elif (epochs := self.epochs or epochs) is not None and 0 < self.newest(done) <= epochs:
            a_pass = self._steps_a_pass(a_step)
            total = None if a_pass is None else epochs * a_pass
        return total if total is not None and total >= done else None

    def _steps_a_pass(self, a_step: float | None) -> int | None:
        expected = None if self.batches is None or a_step is None else math.ceil(self.batches / a_step)
        if self.measured is None:
            return expected
        # A pass may be reported while its last step is still open.
        if expected is not None and abs(expected - self.measured) <= 1:
            return expected
        return round(self.measured) or None

    def _fits(self, a_step: float) -> bool:
        """Return whether the passes so far had as many steps as their batches make."""
        assert self.batches is not None
        return self.measured is None or abs(math.ceil(self.batches / a_step) - self.measured) <= 1


def _batches_a_step(latest: Sequence[Step]) -> float | None:
    counts = [
        times for step in latest[-LATEST:] if step.thread is None for name, _, _, times in step.phases if name == FETCH
    ]
    return median(counts) if counts else None


@dataclass(slots=True)
class FirstFetches:
    """The waits for the first batch of each pass but the run's first, which is a part of its start.

    Of passes that last less than a second not each one is reported, so the sum is a lower bound.
    """

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    awaited: bool = False  # the next step begins a pass

    def take(self, facts: RunFacts, has_stepped: bool) -> None:
        """Take facts as they come; those of a pass come before the step whose first batch it fetches."""
        if has_stepped and (facts.passes or facts.loader_passes):
            self.awaited = True

    def step(self, step: Step) -> None:
        """Take the step that begins a pass."""
        self.awaited = False
        waited = sum(seconds for name, seconds, _, _ in step.phases if name == FETCH)
        if waited > 0.0:
            self.count += 1
            self.seconds += waited
            self.longest = max(self.longest, waited)
