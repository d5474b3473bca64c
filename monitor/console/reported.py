"""Remember which notes and metrics were reported already."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainhooks.protocol.events import Note
from trainhooks.protocol.limits import Number

MAX_NOTES = 20
# Journals hold these texts: the diagnosis reads what follows them.
NOTE_PREFIX, LEFT_OUT = "console: ", "left out, because it cannot be true: "
BY_EPOCHS = "the program numbers only its epochs, so each step shown here is an epoch"
MAX_LAST_VALUES = 2000  # names whose last value is kept; values of others are reported every time


@dataclass(slots=True)
class Reported:
    """What was reported already: a program's output repeats itself."""

    impossible: dict[str, int] = field(default_factory=dict)  # name of an impossible value -> times it was left out
    # Metric -> step and value as last reported
    _seen: dict[str, tuple[int | None, Number]] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)

    def new_metrics(self, metrics: dict[str, Number], step: int | None) -> dict[str, Number]:
        """Return the metrics that are new at a step: a bar repeats its metrics with every frame."""
        new = {}
        for name, value in metrics.items():
            if self._seen.get(name) != (step, value):
                new[name] = value
                if name in self._seen or len(self._seen) < MAX_LAST_VALUES:
                    self._seen[name] = (step, value)
        return new

    def note(self, text: str, now: float, code: str | None = None) -> Note | None:
        """Return a note on the output, the first time."""
        kind = code or text
        if kind in self._noted or len(self._noted) >= MAX_NOTES:
            return None
        self._noted.add(kind)
        return Note(
            producer="", seq=0, t=now, text=f"{NOTE_PREFIX}{text}", level="warning" if code else "info", code=code
        )

    def refusal(self, value: str, now: float) -> Note | None:
        """Count an impossible value. Return a note where it is the first of its name."""
        name = value.rpartition(" ")[0] or value
        note = None
        if name not in self.impossible and len(self.impossible) < MAX_NOTES:
            note = self.note(f"{LEFT_OUT}{value}", now)
            self.impossible[name] = 0
        if name in self.impossible:
            self.impossible[name] += 1
        return note
