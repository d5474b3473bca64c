"""Which steps ran while a GPU was held back, and how much slower they were than the others. Pure.

Steps and GPU readings come from different journals, in any order between them: a late reader sees all steps first.
So the steps are kept as blocks with their times, and compared when somebody asks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import add, sub
from statistics import median

from monitor.columns import Floats, Integers
from trainhooks.events import OVERFLOW

MAX_BLOCKS = 2048  # an hour in blocks of two seconds, a day in blocks of less than a minute and a half
CHUNK = 256  # steps taken in at once: the interpreter's price is paid a chunk, not a step
MAX_KINDS = 8  # roles and stages compared each with its like; further ones are counted, and not compared
INSIDE, OUTSIDE = 5, 10  # blocks of steps on either side; the median of fewer is chance
SURE = 3.0  # standard deviations of the median's rank: chance does not reach beyond
FINE = 0.05  # of a step: a comparison this precise is worth telling, even if it says that nothing changed

Interval = tuple[float, float]
Timed = tuple[float, float, int]  # a step: its begin, its end, its index


@dataclass(frozen=True, slots=True)
class Effect:
    """What a stretch did to the steps. `slower` is 0.18 for steps 18 % longer than outside; None is unknown."""

    steps: int = 0
    seconds: float = 0.0  # of these steps
    slower: float | None = None
    first: int | None = None  # indices of these steps; the edges of a long run are as coarse as its blocks
    last: int | None = None


@dataclass(slots=True)
class StepTimes:
    """When the steps of one kind ran, in blocks of 1, 2, 4... steps."""

    stride: int = 1
    starts: Floats = field(default_factory=Floats)
    ends: Floats = field(default_factory=Floats)
    counts: Integers = field(default_factory=Integers)
    seconds: Floats = field(default_factory=Floats)  # in steps, without the pauses between them
    firsts: Integers = field(default_factory=Integers)  # index of a block's first step
    lasts: Integers = field(default_factory=Integers)
    waiting: list[Timed] = field(default_factory=list)

    def add(self, start: float, end: float, index: int) -> None:
        self.extend([start], [end], [index])

    def extend(self, starts: Sequence[float], ends: Sequence[float], index: Sequence[int]) -> None:
        """As if each step were added by itself: chunks begin and end at the same places."""
        at = 0
        while at < len(ends):
            upto = min(len(ends), at + CHUNK - len(self.waiting))
            columns = starts[at:upto], ends[at:upto], index[at:upto]
            if upto - at == CHUNK:
                self._digest(*columns)
            else:
                self.waiting += zip(*columns, strict=True)
                if len(self.waiting) >= CHUNK:
                    self.digested()
            at = upto

    def digested(self) -> StepTimes:
        """These times, with nothing waiting: to be called before they are read."""
        if self.waiting:
            rows, self.waiting = self.waiting, []
            self._digest([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
        return self

    def _digest(self, starts: Sequence[float], ends: Sequence[float], index: Sequence[int]) -> None:
        at = 0
        while at < len(ends):
            room = self.stride - self.counts[-1] if self.counts else 0
            if not room and len(self.counts) >= MAX_BLOCKS:
                self._halve()
                continue
            upto = min(len(ends), at + (room or self.stride))
            end, seconds = max(ends[at:upto]), sum(map(sub, ends[at:upto], starts[at:upto]))
            if room:
                self.ends[-1] = max(self.ends[-1], end)
                self.counts[-1] += upto - at
                self.seconds[-1] += seconds
                self.lasts[-1] = index[upto - 1]
            else:
                self.starts.append(starts[at])
                self.ends.append(end)
                self.counts.append(upto - at)
                self.seconds.append(seconds)
                self.firsts.append(index[at])
                self.lasts.append(index[upto - 1])
            at = upto

    def _halve(self) -> None:
        """Join blocks in pairs: twice the steps in each, half as many."""
        self.stride *= 2
        self.starts = Floats(self.starts[::2])
        self.ends = Floats(map(max, self.ends[::2], self.ends[1::2]))
        self.counts = Integers(map(add, self.counts[::2], self.counts[1::2]))
        self.seconds = Floats(map(add, self.seconds[::2], self.seconds[1::2]))
        self.firsts = Integers(self.firsts[::2])
        self.lasts = Integers(self.lasts[1::2])

    def blocks(self) -> list[Block]:
        self.digested()
        columns = (self.starts, self.ends, self.counts, self.seconds, self.firsts, self.lasts)
        return sorted(map(Block, *columns), key=lambda block: block.start)


@dataclass(frozen=True, slots=True)
class Block:
    start: float
    end: float
    count: int
    seconds: float
    first: int
    last: int

    def share(self, interval: Interval) -> float:
        """How much of this block lies in the interval, 0 to 1."""
        both = min(self.end, interval[1]) - max(self.start, interval[0])
        if self.end <= self.start:
            return 1.0 if both >= 0 else 0.0
        return max(0.0, both) / (self.end - self.start)


@dataclass(slots=True)
class Timelines:
    """The steps of a run by their kind: roles and stages have lengths of their own."""

    kinds: dict[str, StepTimes] = field(default_factory=dict)

    def add(self, kind: str, start: float, end: float, index: int) -> None:
        self.extend(kind, [start], [end], [index])

    def extend(self, kind: str, starts: Sequence[float], ends: Sequence[float], index: Sequence[int]) -> None:
        times = self.kinds.get(kind)
        if times is None:
            times = self.kinds.setdefault(kind if len(self.kinds) < MAX_KINDS else OVERFLOW, StepTimes())
        times.extend(starts, ends, index)

    def effects(self, stretches: Sequence[Interval], watched: Interval) -> list[Effect]:
        """For each stretch what it did to the steps, against those that lie in none of them.

        Args:
            watched: the time in which the GPUs were looked at; steps beyond it are no measure.
        """
        if not stretches:
            return []
        merged = _merged(stretches)
        tables = [_Table(times.blocks(), merged, watched, like=kind != OVERFLOW) for kind, times in self.kinds.items()]
        return [_joined([table.effect(stretch) for table in tables]) for stretch in stretches]


def _merged(stretches: Sequence[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for start, end in sorted(stretches):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


class _Table:
    """The blocks of one kind of step, and what they take outside every stretch, where they are alike."""

    def __init__(self, blocks: list[Block], merged: list[Interval], watched: Interval, like: bool) -> None:
        self.blocks = blocks
        self.starts = [block.start for block in blocks]
        self.longest = max((block.end - block.start for block in blocks), default=0.0)
        free = [
            block.seconds / block.count
            for block in blocks
            if block.share(watched) >= 1.0 and not any(block.share(each) > 0 for each in _near(merged, block))
        ]
        self.usual = _Middle(free) if like and len(free) >= OUTSIDE else None

    def effect(self, stretch: Interval) -> tuple[Effect, float]:
        """The effect, and the steps that its comparison rests on."""
        first = bisect_left(self.starts, stretch[0] - self.longest)
        last = bisect_left(self.starts, stretch[1])
        touched = [(block, share) for block in self.blocks[first:last] if (share := block.share(stretch)) > 0]
        counted = Effect(
            sum(1 if block.count == 1 else round(block.count * share) for block, share in touched),
            sum(block.seconds * share for block, share in touched),
            first=min((block.first for block, _ in touched), default=None),
            last=max((block.last for block, _ in touched), default=None),
        )
        inside = [(block.seconds / block.count, block.count) for block, share in touched if share >= 0.5]
        if self.usual is None or len(inside) < INSIDE or self.usual.value <= 0:
            return counted, 0.0
        middle = _Middle([value for value, _ in inside])
        least, most = middle.low - self.usual.high, middle.high - self.usual.low
        if least <= 0.0 <= most and max(-least, most) > FINE * self.usual.value:
            return counted, 0.0
        change = middle.value - self.usual.value
        weight = float(sum(count for _, count in inside))
        return replace(counted, slower=change / self.usual.value), weight


def _near(merged: list[Interval], block: Block) -> list[Interval]:
    """The stretches that may touch this block."""
    first = max(0, bisect_left(merged, (block.start, block.start)) - 1)
    out = []
    for each in merged[first:]:
        if each[0] > block.end:
            break
        out.append(each)
    return out


class _Middle:
    """A median, and the values between which it may lie by chance: by ranks, so that steps of two speeds show it."""

    def __init__(self, values: list[float]) -> None:
        self.value = median(values)
        ordered, half = sorted(values), len(values) / 2
        reach = SURE * len(values) ** 0.5 / 2
        self.low = ordered[max(0, math.floor(half - reach))]
        self.high = ordered[min(len(ordered) - 1, math.ceil(half + reach))]


def _joined(parts: list[tuple[Effect, float]]) -> Effect:
    """The kinds of step together: each weighs by its steps."""
    weight = sum(each for _, each in parts)
    slower = sum((effect.slower or 0.0) * each for effect, each in parts) / weight if weight else None
    return Effect(
        sum(effect.steps for effect, _ in parts),
        sum(effect.seconds for effect, _ in parts),
        slower,
        min((effect.first for effect, _ in parts if effect.first is not None), default=None),
        max((effect.last for effect, _ in parts if effect.last is not None), default=None),
    )
