"""Epochs as steps, where a program numbers nothing finer: the first one, and the time that each tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.console.amounts import Amount
from monitor.console.drafts import Draft, HeldStep, phases_together
from monitor.console.reading import Reading

MIN_GROWTH = 1.25  # of the time since the start, from the first epoch to the second; epochs alone differ by less
ROUNDING_SECONDS = 1e-6  # between computed moments that are equal


@dataclass(slots=True)
class EpochSteps:
    """Hold the first epoch until the next one shows that epochs are the steps."""

    _first: Draft | None = None
    _last_time: float | None = None
    _grows: bool | None = None  # the time that is printed with each epoch

    def set_own_time(self, reading: Reading) -> None:
        """Take the time in a line about an epoch as that of the epoch where it does not grow with the epochs."""
        elapsed, before = reading.elapsed, self._last_time
        if reading.family != "epoch" or elapsed is None:
            return
        self._last_time = elapsed
        if before is not None and (self._grows is None or elapsed < before):
            self._grows = elapsed >= MIN_GROWTH * before
        if self._grows is False:
            reading.seconds, reading.elapsed = reading.seconds or elapsed, None

    def hold(self, reading: Reading, tokens: Amount, samples: Amount) -> None:
        """Hold the line about the first epoch."""
        self._first = Draft(1, 1, reading, tokens, samples)

    def add_phases(self, reading: Reading) -> bool:
        """Add phases that were printed behind the first epoch. Return whether they belong to it."""
        first = self._first
        parts = phases_together(first.phases, reading) if first is not None and not reading.block else None
        if first is None or parts is None:
            return False
        first.phases = parts
        return True

    def take(self) -> Draft | None:
        """Return the first epoch, once; it is held no longer."""
        first, self._first = self._first, None
        return first


def set_first_time(held: HeldStep, first: Draft, following: float, began: float) -> None:
    """Set how long the first epoch took: what it tells, else as long as the following one. The rest is start-up.

    Args:
        began: when the output began; nothing is set where the epoch would begin before that.
    """
    own = first.reading.seconds or first.reading.elapsed or following
    if 0.0 < own <= held.step.start - began + ROUNDING_SECONDS:
        held.set_duration(held.step.t, own)
        held.step.tokens, held.step.samples = first.tokens.share(1, own), first.samples.share(1, own)
