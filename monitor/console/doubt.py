"""A first progress bar that does not say what it counts: the training's steps, or a preparation's files? Pure.

`100%|####| 1000/1000 [00:05<00:00, 200it/s]` alone may be either. What comes later shows which, so until then such a
bar is held back: nothing that has once been told as steps can be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.console import bars
from monitor.console.counters import NEARLY, full_key
from monitor.console.reading import Reading
from trainhooks.events import Span

HOLD, PASS = -1, -2  # verdicts: keep it back; it has nothing to do with this
# Seconds, of an output that is alive. A preparation of this length tells what it does, as a rule, and who looks at a
# training wants to see its steps: they then come all at once.
PATIENCE = 15.0
MAX_FRAMES = 4096  # tqdm draws ten a second
MAX_BARS = 8
ALWAYS = MAX_BARS + 2  # the place of what belongs to no bar: it is read whichever is the training's

PREPARATION = "preparation"
UNKNOWN = "progress bar"  # its name while it is open

_STEPS = ("step", "batch", "iter", "update", "epoch")  # units that say what is counted
_TRAINING = ("train", "epoch", "step", "batch", "iter", "updat", "optim", "learn", "fit")


@dataclass(slots=True)
class Doubtful:
    """One bar."""

    key: str
    total: int
    began: float
    step: int = 0
    span: Span | None = None  # when it has come to its end

    @property
    def complete(self) -> bool:
        return self.step >= NEARLY * self.total


@dataclass(slots=True)
class Doubts:
    """The bars that are held back, and what was printed between them."""

    bars: list[Doubtful] = field(default_factory=list)
    frames: list[tuple[float, int, Reading]] = field(default_factory=list)  # moment, place of its bar, reading
    spent: float = 0.0  # seconds of spans since the newest frame
    _epoch: float | None = None  # that a line told after the newest bar had ended

    def judge(self, reading: Reading, in_epochs: bool) -> int:
        """What a reading shows.

        Args:
            in_epochs: the program has told of epochs: whatever is drawn from then on is its training.

        Returns:
            HOLD, PASS, or the place of the first bar that is the training's: those before it were preparation.
        """
        if not self.bars:
            return HOLD if not in_epochs and _says_nothing(reading) else PASS
        if len(self.frames) >= MAX_FRAMES or len(self.bars) > MAX_BARS:
            return self.likely()
        if reading.family == "bar":
            return self._by_bar(reading)
        if reading.step is not None and not reading.mention:
            return self._by_number(reading)
        return self._by_figures(reading)

    def _by_bar(self, bar: Reading) -> int:
        newest = self.bars[-1]
        place = next((at for at, known in enumerate(self.bars) if known.key == full_key(bar)), None)
        if bar.step is None or bars.counts_epochs(bar):
            return self.likely()
        if place is None:
            if not newest.complete:
                return len(self.bars) - 1
            return HOLD if _says_nothing(bar) else len(self.bars)
        goes_on = place == len(self.bars) - 1 and bar.step >= newest.step and self._epoch is None
        return HOLD if goes_on and not bar.metrics else place  # else it has begun again, which a preparation does not

    def _by_number(self, line: Reading) -> int:
        newest = self.bars[-1]
        assert line.step is not None
        counts_the_same = line.total == newest.total or abs(line.step - newest.step) <= 1
        if not newest.complete or counts_the_same:
            return len(self.bars) - 1
        told = line.metrics or line.phases or line.reason or line.total
        return len(self.bars) if told else self.likely()

    def _by_figures(self, line: Reading) -> int:
        newest = self.bars[-1]
        if not (line.metrics or line.phases):
            return PASS
        if newest.step < newest.total:
            return len(self.bars) - 1
        epoch = line.epoch
        if epoch is None or epoch != int(epoch):
            return self.likely()
        if self._epoch is not None and epoch > self._epoch:
            return len(self.bars)  # epochs pass without a bar
        return HOLD

    def likely(self) -> int:
        """The first bar of the training, where nothing shows it: a longer one is no evaluation of a shorter one."""
        longer = [at for at in range(1, len(self.bars)) if self.bars[at].total > self.bars[at - 1].total]
        return longer[-1] if longer else 0

    def hold(self, now: float, reading: Reading) -> Doubtful | None:
        """Keep a reading back; the bar that it is a frame of."""
        if reading.family != "bar":
            self._epoch = reading.epoch
            self.frames.append((now, ALWAYS, reading))
            return None
        assert reading.step is not None and reading.total is not None
        key = full_key(reading)
        if not self.bars or self.bars[-1].key != key:
            self.bars.append(Doubtful(key, reading.total, now - (reading.elapsed or 0.0)))
        elif reading.step == self.bars[-1].step:
            return self.bars[-1]  # drawn once more
        self.bars[-1].step, self.spent = reading.step, 0.0
        self.frames.append((now, len(self.bars) - 1, reading))
        return self.bars[-1]

    def overdue(self, now: float) -> bool:
        return bool(self.bars) and self.bars[-1].step < self.bars[-1].total and now - self.bars[-1].began > PATIENCE


def _says_nothing(bar: Reading) -> bool:
    """Whether this is a bar of which it is open what it counts."""
    if bar.family != "bar" or bar.step is None or not bar.total or bar.metrics or bar.per_epoch or bar.tokens_rate:
        return False
    label, unit = bar.label.lower(), bar.unit.lower()
    return not (any(word in label for word in _TRAINING) or unit.startswith(_STEPS))
