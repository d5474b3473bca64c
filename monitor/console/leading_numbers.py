"""A number without a name at the beginning of a line, as a step.

It reads `[12]  train-rmse:0.50`, `12:<tab>learn: 0.50`, `12 | loss 0.50`, `  12 train loss: 0.50`.

It may also be a rank or a fold. A step rises evenly from line to line, so the first lines are held back until three
of them have done so; ranks start over soon, and then do not count as steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.console.reading import Reading

MIN_EVEN_NUMBERS = 3  # numbers that have risen evenly are steps
MIN_ROUND_NUMBERS = 16  # a count that starts over before this number counts ranks or folds
MAX_HELD_LINES = 16  # several lines may have one number: of the training's data, and of an evaluation's

_LEADING = re.compile(
    r"^\s{0,8}(?:\[\s{0,8}(?P<a>\d{1,12})\][ \t]{1,8}|(?P<b>\d{1,12}):\t\s{0,8}|(?P<c>\d{1,12}) ?\| {1,4}"
    r"|(?P<d>\d{1,12}) {1,4}(?=[A-Za-z]))(?=[^\s\d\[])"
)


def leading_number(text: str) -> int | None:
    """Return the number before everything else in a line; None where there is none."""
    match = _LEADING.match(text)
    return int(match["a"] or match["b"] or match["c"] or match["d"]) if match is not None else None


@dataclass(slots=True)
class LeadingNumbers:
    """Convert leading numbers to steps once they are known to be steps."""

    _held: list[Reading] = field(default_factory=list)
    _clear: bool = False
    _never: bool = False
    _last: int | None = None
    _stride: int | None = None
    _risen: int = 0  # numbers of this round, so far

    @property
    def waiting(self) -> bool:
        return bool(self._held)

    def add_reading(self, reading: Reading) -> list[Reading]:
        """Return this reading with those held back before it; empty where it must wait."""
        number = reading.head
        if number is None or self._never:
            return [reading]
        stride = number - self._last if self._last is not None else None
        falls = stride is not None and stride < 0
        uneven = stride != 0 and self._risen >= MIN_EVEN_NUMBERS - 1 and stride != self._stride
        starts_over = falls or (uneven and not self._clear)
        self._never = falls and self._clear and self._risen < MIN_ROUND_NUMBERS
        released = self.release() if starts_over else []
        if self._never:
            return [*released, reading]
        if stride != 0:
            self._stride, self._last, self._risen = stride, number, 1 if starts_over else self._risen + 1
        self._held.append(reading)
        self._clear = self._clear or self._risen >= MIN_EVEN_NUMBERS
        if not self._clear:
            return released + (self.release() if len(self._held) > MAX_HELD_LINES else [])
        for held in self._held:
            held.step, held.key, held.family = held.head, "head", "step"
        return released + self.release()

    def release(self) -> list[Reading]:
        """Return the readings held back, unchanged."""
        held, self._held = self._held, []
        return held
