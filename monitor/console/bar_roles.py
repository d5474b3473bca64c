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
from trainhooks.protocol.limits import clean

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


# Bars other than the training's: loading, downloading, tokenizing, evaluating. Every one becomes a span.

MAX_OPEN_BARS = 50
MAX_ENDED_BARS = 1000  # bars whose end is remembered
MAX_QUIET_SECONDS = 60.0  # seconds without a new frame after which a bar that never ended counts as ended
# Seconds: a full bar that seems to have started before its own end is its last frame, drawn again.
REDRAWN_SECONDS = 0.5
# Seconds between the last frame of a bar and the beginning that a frame gives, if both are of one bar.
SAME_BAR_SECONDS = 1.0


@dataclass(slots=True)
class _OpenBar:
    name: str
    label: str | None
    start: float
    last: float
    done: int | None = None
    total: int | None = None
    fraction: float | None = None


@dataclass(slots=True)
class BarSpans:
    """Make spans of bars, by their labels. A moment within several spans belongs to one."""

    claimed: float = 0.0  # the end of what earlier spans, and steps, have claimed
    _open: dict[str, _OpenBar] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)
    _inner: _OpenBar | None = None  # a bar without a label beside the training's

    def add_frame(self, name: str, bar: Reading, now: float) -> Span | None:
        """Take one frame of a bar. Return the span if the bar has ended."""
        key = f"{bar.key}/{bar.total}"
        known = self._open.get(key)
        started = now - (bar.elapsed or 0.0)
        if known is not None and bar.step is not None and known.done is not None and bar.step < known.done:
            del self._open[key]
            known = None
        if known is None:
            ended = self._ended.get(key)
            # Before that the clock had not started.
            earliest = ended + REDRAWN_SECONDS if ended is not None else -REDRAWN_SECONDS
            if len(self._open) >= MAX_OPEN_BARS or (_is_over(bar) and started <= earliest):
                return None
            known = self._open[key] = _OpenBar(name, bar.label, started, now)
        known.last, known.done, known.total, known.fraction = now, bar.step, bar.total, bar.fraction
        if not _is_over(bar):
            return None
        del self._open[key]
        if len(self._ended) < MAX_ENDED_BARS or key in self._ended:
            self._ended[key] = now
        return self._span(known, now)

    def close(self, key: str) -> Span | None:
        """Return the span of an open bar, up to its last frame; None where it has ended."""
        known = self._open.pop(key, None)
        return None if known is None else self._span(known, known.last)

    def forget(self, key: str) -> None:
        """Drop a bar that proved to be the training's."""
        self._open.pop(key, None)

    def add_inner_frame(self, bar: Reading, now: float) -> None:
        """Take a frame of a bar within or beside the training's: it may be an evaluation, or a part of a step."""
        if bar.label:
            return
        started = now - (bar.elapsed or 0.0)
        if self._inner is None or started > self._inner.last + SAME_BAR_SECONDS:
            self._inner = _OpenBar("eval", None, started, now)
        self._inner.last = max(now, self._inner.last)

    def inner_evaluation(self, since: float | None) -> Span | None:
        """Return the span of that bar, where it ran after the last step, now that it has proved to be an evaluation."""
        inner, self._inner = self._inner, None
        if inner is None or since is None or inner.last <= since:
            return None
        inner.start = max(inner.start, since)
        return self._span(inner, inner.last)

    def evaluation(self, begin: float, now: float) -> Span | None:
        """Return an evaluation from `begin` until now; None where nothing is left between them."""
        if now <= max(begin, self.claimed):
            return None
        return self._span(_OpenBar("eval", None, begin, now), now)

    def end_quiet(self, now: float, longest: float = MAX_QUIET_SECONDS) -> list[Span]:
        """Return the spans of bars without a new frame for `longest` seconds: they were interrupted or cleared."""
        over = [key for key, bar in self._open.items() if now - bar.last >= longest]
        return [self._span(bar, bar.last) for bar in map(self._open.pop, over)]

    def open(self, now: float) -> list[tuple[str, float]]:
        """Return the open bars, outermost first: name with progress, and seconds so far."""
        bars = sorted(self._open.values(), key=lambda bar: bar.start)
        return [(_progress(bar), max(0.0, now - bar.start)) for bar in bars]

    def _span(self, known: _OpenBar, end: float) -> Span:
        start = min(known.start, end)
        own = max(0.0, end - max(start, self.claimed))
        self.claimed = max(self.claimed, end)
        span = Span(producer="", seq=0, t=end, name=known.name, start=start, duration=end - start, own=own)
        span.detail = clean(known.label or "", 120) or None
        return span


def _is_over(bar: Reading) -> bool:
    if bar.step is not None and bar.total is not None:
        return bar.step >= bar.total
    return bar.fraction is not None and bar.fraction >= 1.0


def _progress(known: _OpenBar) -> str:
    label = clean(known.label or "", 80) or known.name
    if known.total is not None and known.done is not None and known.total < 1_000_000:
        return f"{label} {known.done:,}/{known.total:,}"
    if known.total and known.done is not None:
        return f"{label} {100 * known.done // known.total}%"
    return label
