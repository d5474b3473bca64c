"""Decide what a progress bar counts: the training's steps, its epochs, or loading, downloading, evaluating, preparing.

`100%|####| 1000/1000 [00:05<00:00, 200it/s]` alone may be steps or a preparation's files. Later output shows which,
so until then such a bar is held back: reported steps cannot be withdrawn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from monitor.console.reading import Reading
from trainhooks.protocol.events import Span

# Roles by label

_STEP_WORDS = re.compile(r"train|\bfit|step|iter|updat|optim|learn", re.IGNORECASE)
_EPOCH_WORDS = re.compile(r"^\s*(?:training\s)?epochs?\s*:?$", re.IGNORECASE)
_SPANS = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "download": r"^\W*(?:download|fetching|uploading|pulling)",
        "load": r"^\W*(?:\w{1,20} )?(?:loading|materializing)|checkpoint shards",
        "tokenize": r"^\W*(?:(?:running )?tokeni[sz]|map\b|filter\b|casting|grouping|packing|truncating|applying"
        r"|converting|adding (?:eos|bos)|extracting prompt|formatting|encoding)",
        "preparation": r"^\W*(?:[a-z]{1,12}: )?(?:saving the dataset|generating \w{1,20} (?:split|examples)"
        r"|pre-?process|preparing|reading|parsing|building|compiling|linking|creating|indexing|sanity|caching"
        r"|extracting|collecting|scanning)",
        "eval": r"^\W*(?:evaluat|eval\b|valid|val\b|test\b|testing\b|predict|inference|class\s+images\b)",
        "checkpoint": r"^\W*(?:saving|writing|checkpointing)",
    }.items()
}


def span_of(bar: Reading) -> str | None:
    """Return the name of the span that a bar shows, if it counts no training steps: load, download, eval..."""
    label = bar.label or ""
    return next(
        (name for name, pattern in _SPANS.items() if pattern.search(label)), "download" if bar.unit == "B" else None
    )


def counts_epochs(bar: Reading) -> bool:
    """Return whether a bar counts epochs: `Epochs: 2/3`; `Epoch 2: 45/100` counts steps in one."""
    return (bar.unit or "").lower().startswith("epoch") or _EPOCH_WORDS.match(bar.label or "") is not None


def names_training(bar: Reading) -> bool:
    """Return whether the label of a bar says that it counts the training's steps."""
    return _STEP_WORDS.search(bar.label or "") is not None


# Roles by later output

NEARLY_COMPLETE = 0.9  # a bar cleared this close to its end was complete: tqdm skips the last frames
# Seconds of live output. A preparation of this length usually has a label, and the steps of a training must show:
# after this time all held frames are reported as steps.
MAX_HELD_SECONDS = 15.0
MAX_HELD_FRAMES = 4096  # tqdm draws ten per second
MAX_UNLABELED_BARS = 8

PREPARATION = "preparation"
UNLABELED_NAME = "progress bar"  # its name while it is open

_STEP_UNITS = ("step", "batch", "iter", "update", "epoch")  # units of training bars
_TRAINING = ("train", "epoch", "step", "batch", "iter", "updat", "optim", "learn", "fit")


class Pending(Enum):
    """The result for a reading that does not show which bar is the training's."""

    HELD = auto()  # not clear yet: the reading is held back
    UNRELATED = auto()  # the reading does not concern the bars


@dataclass(slots=True)
class UnlabeledBar:
    """One bar without a label or unit that says what it counts."""

    key: str
    total: int
    began: float
    step: int = 0
    span: Span | None = None  # once it has ended

    @property
    def complete(self) -> bool:
        return self.step >= NEARLY_COMPLETE * self.total


@dataclass(frozen=True, slots=True)
class Frame:
    """A reading that is held back until its bar's role is clear."""

    moment: float
    bar: int | None  # index of its bar; None for a reading of no bar
    reading: Reading


@dataclass(slots=True)
class UnlabeledBars:
    """The bars that are held back, with the readings between them."""

    bars: list[UnlabeledBar] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    spent: float = 0.0  # seconds of spans since the newest frame
    _epoch: float | None = None  # given by a line after the newest bar had ended

    def judge(self, reading: Reading, in_epochs: bool) -> Pending | int:
        """Return the index of the first bar that is the training's, those before it were preparation; else `Pending`.

        Args:
            in_epochs: the program has named an epoch: whatever is drawn from then on is its training.
        """
        if not self.bars:
            return Pending.HELD if not in_epochs and _is_unlabeled(reading) else Pending.UNRELATED
        if len(self.frames) >= MAX_HELD_FRAMES or len(self.bars) > MAX_UNLABELED_BARS:
            return self.likely()
        if reading.family == "bar":
            return self._by_bar(reading)
        if reading.step is not None and not reading.mention:
            return self._by_number(reading, reading.step)
        return self._by_metrics(reading)

    def _by_bar(self, bar: Reading) -> Pending | int:
        newest = self.bars[-1]
        index = next((index for index, known in enumerate(self.bars) if known.key == bar.counter), None)
        if bar.step is None or counts_epochs(bar):
            return self.likely()
        if index is None:
            if not newest.complete:
                return len(self.bars) - 1
            return Pending.HELD if _is_unlabeled(bar) else len(self.bars)
        continues = index == len(self.bars) - 1 and bar.step >= newest.step and self._epoch is None
        if continues and not bar.metrics:
            return Pending.HELD
        return index  # it started again, which a preparation does not

    def _by_number(self, line: Reading, step: int) -> int:
        newest = self.bars[-1]
        counts_the_same = line.total == newest.total or abs(step - newest.step) <= 1
        if not newest.complete or counts_the_same:
            return len(self.bars) - 1
        says_more = line.metrics or line.phases or line.reason or line.total
        return len(self.bars) if says_more else self.likely()

    def _by_metrics(self, line: Reading) -> Pending | int:
        newest = self.bars[-1]
        if line.skipped and not newest.complete:
            return len(self.bars) - 1  # only a training skips steps
        if not (line.metrics or line.phases):
            return Pending.UNRELATED
        if newest.step < newest.total:
            return len(self.bars) - 1
        epoch = line.epoch
        if epoch is None or epoch != int(epoch):
            return self.likely()
        if self._epoch is not None and epoch > self._epoch:
            return len(self.bars)  # epochs pass without a bar
        return Pending.HELD

    def likely(self) -> int:
        """Return the likely first bar of the training: a longer bar is no evaluation of a shorter one."""
        longer = [index for index in range(1, len(self.bars)) if self.bars[index].total > self.bars[index - 1].total]
        return longer[-1] if longer else 0

    def hold(self, now: float, reading: Reading) -> UnlabeledBar | None:
        """Hold a reading back. Return the bar that it is a frame of."""
        if reading.family != "bar" or reading.step is None or reading.total is None:
            self._epoch = reading.epoch
            self.frames.append(Frame(now, None, reading))
            return None
        key = reading.counter
        if not self.bars or self.bars[-1].key != key:
            self.bars.append(UnlabeledBar(key, reading.total, now - (reading.elapsed or 0.0)))
        elif reading.step == self.bars[-1].step:
            return self.bars[-1]  # drawn again
        self.bars[-1].step, self.spent = reading.step, 0.0
        self.frames.append(Frame(now, len(self.bars) - 1, reading))
        return self.bars[-1]

    def overdue(self, now: float) -> bool:
        """Return whether the newest bar has been open for too long to wait for later output."""
        return (
            bool(self.bars)
            and self.bars[-1].step < self.bars[-1].total
            and now - self.bars[-1].began > MAX_HELD_SECONDS
        )


def _is_unlabeled(bar: Reading) -> bool:
    """Return whether this is a bar that does not say what it counts."""
    if bar.family != "bar" or bar.step is None or not bar.total or bar.metrics or bar.per_epoch or bar.tokens_rate:
        return False
    label, unit = (bar.label or "").lower(), (bar.unit or "").lower()
    return not (any(word in label for word in _TRAINING) or unit.startswith(_STEP_UNITS))
