"""Where a program prints that it is, compared with the steps that the hooks have counted. Pure.

The hooks count steps, and often do not know how many there will be. The program may print that: `iter 100/5000`, a bar,
`Epoch 2/10`. Its counter may count something else, so its total is taken only where both have moved in accord.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from trainhooks.protocol.facts import PrintedPosition

MAX_SAMPLES = 64  # positions kept; of more, every second one
MIN_SAMPLES = 3  # two positions are in accord with any counter that does not stand still
MIN_STEPS = 8  # steps of the hooks between the first sample and the last; fewer may agree by chance
DELAY = 0.2  # seconds from a print until its line is read, at most: the output is looked at every 0.05 s
MAX_DOUBT = 0.1  # of the steps so far: what may have passed in that delay; beyond it, other counters fit as well
MAX_RATIO = 100_000  # steps an epoch, or batches a step


@dataclass(frozen=True, slots=True)
class Sample:
    """One printed position: the moment it was read, the program's own count of steps since it began."""

    t: float
    step: int


@dataclass(slots=True)
class Printed:
    """The newest printed position, and earlier ones. None is unknown."""

    step: int = 0  # done since the program began, by its own count
    total: int | None = None  # of these
    epoch: int | None = None  # from 1
    epochs: int | None = None
    batch: int | None = None  # of the epoch
    batches: int | None = None
    samples: list[Sample] = field(default_factory=list)

    def take(self, row: PrintedPosition, t: float) -> None:
        """Take the fact `printed` of the console, of the moment `t`."""
        self.total, self.epoch, self.epochs = row.total or None, row.epoch or None, row.epochs or None
        self.batch, self.batches = row.batch or None, row.batches or None
        step = row.step
        if not step or step == self.step:
            return
        if step < self.step:
            self.samples.clear()
        self.step = step
        self.samples.append(Sample(t, step))
        if len(self.samples) > MAX_SAMPLES:
            self.samples = self.samples[:-1:2] + self.samples[-1:]

    @property
    def place(self) -> tuple[int, int] | None:
        """Return the batch within the epoch and the batches of one; None where one of them is unknown."""
        if self.epoch is None or self.batch is None or self.batches is None or self.batch > self.batches:
            return None
        return self.batch, self.batches

    def in_steps(self, steps_by: Callable[[float], float], done: int) -> int | None:
        """Return the printed total in steps of the hooks; None where it is unknown or the counts do not agree.

        Args:
            steps_by: the hooks' steps that had ended by a moment.
            done: the hooks' steps by now.
        """
        total, samples = self.total, self.samples
        if total is None or len(samples) < MIN_SAMPLES:
            return None
        bounds = [(steps_by(sample.t - DELAY) - 1, steps_by(sample.t) + 1) for sample in samples]
        low, high = bounds[-1]
        if high - bounds[0][1] < MIN_STEPS or high - low - 2 > MAX_DOUBT * high:
            return None
        ratio = _ratio(samples[-1].step, low, high)
        if ratio is None or self._is_uneven(ratio[1]):
            return None
        up, down = ratio
        for sample, (least, most) in zip(samples, bounds, strict=True):
            if not least <= sample.step * up / down <= most + (1 if down > 1 else 0):
                return None
        planned = total * up // down
        return planned if planned >= done else None

    def _is_uneven(self, batches_a_step: int) -> bool:
        """Return whether an epoch ends within a step of several batches: how many steps it has then is unknown."""
        whole = self.batches if self.batches is not None else self.total
        return batches_a_step > 1 and (whole is None or whole % batches_a_step != 0)

    def agrees_with(self, number: int, epochs: int) -> bool:
        """Return whether the printed epoch is that of the pass `number` over the loader, or of the one just over."""
        return self.epoch is not None and self.epoch in (number, number - 1) and number <= epochs


def _ratio(printed: int, low: float, high: float) -> tuple[int, int] | None:
    """Return the steps of as many printed steps: (1, 1), (n, 1) or (1, n); None where none fits, or several do."""
    if low <= printed <= high:
        return 1, 1
    if printed < low:
        several = [n for n in (math.ceil(low / printed), math.floor(high / printed)) if low <= n * printed <= high]
        return (several[0], 1) if len(set(several)) == 1 and several[0] < MAX_RATIO else None
    several = [n for n in (math.ceil(printed / (high + 1)), math.floor(printed / max(low, 1))) if n > 1]
    return (1, several[0]) if len(set(several)) == 1 and several[0] < MAX_RATIO else None
