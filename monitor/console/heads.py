"""A number at the head of a line, without a name: `[12]  train-rmse:0.50`, `12:<tab>learn: 0.50`. Pure.

It may as well be a rank's or a fold's. A step rises evenly from line to line, so the first lines are held back until
three of them have done so; ranks come round again soon, and are then no longer believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.console.reading import Reading

EVEN = 3  # numbers that have risen evenly are steps
ROUND = 16  # a count that begins again before it came so far counts ranks or folds
MAX_HELD = 16  # several lines may have one number: of the training's data, and of an evaluation's

_HEAD = re.compile(r"^\s{0,8}(?:\[\s{0,8}(?P<a>\d{1,12})\][ \t]{1,8}|(?P<b>\d{1,12}):\t\s{0,8})(?=[^\s\d\[])")


def head(text: str) -> int | None:
    """The number before everything else in a line; None where there is none."""
    found = _HEAD.match(text)
    return int(found["a"] or found["b"]) if found is not None else None


@dataclass(slots=True)
class Heads:
    """Makes these numbers steps, once it is clear that they are."""

    _held: list[Reading] = field(default_factory=list)
    _clear: bool = False
    _never: bool = False
    _last: int = -1
    _stride: int = 0
    _risen: int = 0  # numbers of this round, so far

    @property
    def waiting(self) -> bool:
        return bool(self._held)

    def take(self, reading: Reading) -> list[Reading]:
        """What can be told now: this reading, with those held back before it; nothing, where it has to wait."""
        number = reading.head
        if number is None or self._never:
            return [reading]
        if number < self._last:
            self._never = self._clear and self._risen < ROUND
            self._risen, self._stride = 0, 0
            released = self.release() if not self._clear else []
            self._last = number
            if self._never:
                return [*released, reading]
            return released + self._add(reading, number, new=True)
        new = number > self._last
        if new and not self._clear and self._risen >= 2 and number - self._last != self._stride:
            released = self.release()
            self._risen = 0
            return released + self._add(reading, number, new=True)
        return self._add(reading, number, new)

    def _add(self, reading: Reading, number: int, new: bool) -> list[Reading]:
        if new:
            self._stride, self._last = number - self._last, number
            self._risen += 1
        self._held.append(reading)
        self._clear = self._clear or self._risen >= EVEN
        if not self._clear:
            return self.release() if len(self._held) > MAX_HELD else []
        for each in self._held:
            each.step, each.key, each.family = each.head, "head", "step"
        return self.release()

    def release(self) -> list[Reading]:
        """What is held back, as it stands."""
        held, self._held = self._held, []
        return held
