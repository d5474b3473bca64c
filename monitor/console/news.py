"""What is news: a program's output says the same thing again and again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainhooks.events import Note, Number

MAX_NOTES = 20
MAX_METRICS = 2000  # names that are remembered; more are told each time


@dataclass(slots=True)
class News:
    """Knows what has been told, and lets pass what has not."""

    impossible: dict[str, int] = field(default_factory=dict)  # figures left out because they cannot be true: how often
    _seen: dict[str, tuple[int, Number]] = field(default_factory=dict)  # metric -> step and value as last told
    _noted: set[str] = field(default_factory=set)

    def metrics(self, told: dict[str, Number], at: int) -> dict[str, Number]:
        """The metrics that are news: a bar repeats its figures with every frame."""
        out = {}
        for name, value in told.items():
            if self._seen.get(name) != (at, value):
                out[name] = value
                if name in self._seen or len(self._seen) < MAX_METRICS:
                    self._seen[name] = (at, value)
        return out

    def note(self, text: str, now: float, code: str | None = None) -> Note | None:
        """A note on the output, the first time."""
        kind = code or text
        if kind in self._noted or len(self._noted) >= MAX_NOTES:
            return None
        self._noted.add(kind)
        return Note("", 0, now, f"console: {text}", "warning" if code else "info", code)

    def refusal(self, figure: str, now: float) -> Note | None:
        """Count a figure that cannot be true; a note, where it is the first of its name."""
        name = figure.rpartition(" ")[0] or figure
        note = None
        if name not in self.impossible and len(self.impossible) < MAX_NOTES:
            note = self.note(f"left out, because it cannot be true: {figure}", now)
            self.impossible[name] = 0
        if name in self.impossible:
            self.impossible[name] += 1
        return note
