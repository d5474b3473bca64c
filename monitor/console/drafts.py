"""Steps between their line and their event: how long they took is known later, and shared among those of one line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from monitor.console.amounts import Amount
from monitor.console.reading import Reading
from trainhooks.protocol.events import Step
from trainhooks.protocol.limits import Number


@dataclass(slots=True)
class Draft:
    """Steps that are done, with a duration not known yet."""

    index: int  # of the last
    count: int
    reading: Reading
    tokens: Amount
    samples: Amount
    phases: Reading | None = None


@dataclass(slots=True)
class HeldStep:
    """A step about to be returned. The newest may still get phases and metrics."""

    step: Step
    seconds: float | None = None  # None: unknown

    def set_duration(self, end: float, seconds: float) -> None:
        """Set how long the step took, and when it ended. Programs print "0 s" for unmeasured times."""
        self.step.start, self.seconds = end - seconds, seconds or None

    def event(self) -> Step:
        """Return the event. In a journal a duration of 0 means unknown."""
        self.step.duration = self.seconds or 0.0
        return self.step


def durations(draft: Draft, count: int, place: int, seconds: float | None) -> list[float | None]:
    """Return what each step of a draft took: equal parts, unless the program says of one how long it took."""
    own = draft.phases.seconds if draft.phases is not None and draft.phases.block else None
    if seconds is None or own is None or count == 1 or not seconds < own < count * seconds:
        return [seconds] * count
    others = (count * seconds - own) / (count - 1)
    return [own if at == place else others for at in range(count)]


def phases_together(before: Reading | None, reading: Reading) -> Reading | None:
    """Return the phases of a step with further ones that came in a line of their own; None where they are no such."""
    if before is None:
        return reading
    if before.block or reading.block or before.phases.keys() & reading.phases.keys():
        return None
    return replace(reading, phases=before.phases | reading.phases)


def epoch_of(reading: Reading) -> Number | None:
    """Return the epoch of a line as it is stored: a whole one as an integer."""
    if reading.epoch is None:
        return None
    return int(reading.epoch) if reading.epoch == int(reading.epoch) else reading.epoch
