"""The steps during a GPU's throttle events, and how much slower they were than the others. Pure.

Steps and GPU readings come from different journals in any order: a late reader sees all steps first. So the steps
are kept as blocks with their times and compared on demand.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from monitor.arrays import FloatArray, IntArray, np
from monitor.model.history import History
from monitor.model.steps.baseline import OTHER_KINDS, StepKind

MAX_BLOCKS = 2048  # an hour in blocks of two seconds, a day in blocks of less than a minute and a half
MAX_KINDS = 8  # roles and stages that are compared; further ones are only counted
MIN_BLOCKS_INSIDE, MIN_BLOCKS_OUTSIDE = 5, 10  # blocks of steps inside and outside, for a reliable median
SIGMAS = 3.0  # standard deviations of the median's rank
MAX_UNCERTAINTY = 0.05  # of a step: a comparison this precise is shown, even if nothing changed

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a stretch on the steps. `slower` is 0.18 for steps 18% longer than outside; None: unknown."""

    steps: int = 0
    seconds: float = 0.0  # of these steps
    slower: float | None = None
    first: int | None = None  # indices of these steps; as coarse as the blocks of a long run
    last: int | None = None


@dataclass(slots=True)
class StepTimes:
    """When the steps of one kind ran, in blocks of 1, 2, 4... steps."""

    steps: int = 0
    history: History = field(default_factory=lambda: History(MAX_BLOCKS))

    def extend(self, starts: FloatArray, ends: FloatArray, index: IntArray) -> None:
        """Add steps, in the order in which they ended."""
        places = np.arange(self.steps, self.steps + len(starts))
        self.steps += len(starts)
        count, number = np.ones(len(starts)), index.astype(float)
        columns = {
            "begin": starts,
            "end": ends,
            "count": count,
            "total": ends - starts,
            "first": number,
            "last": number,
        }
        self.history.add(places, columns)

    def blocks(self) -> list[Block]:
        begin, end, count, seconds, first, last = (
            self.history.of(name) for name in ("begin", "end", "count", "total", "first", "last")
        )
        numbers = (column.astype(np.int64).tolist() for column in (count, first, last))
        rows = zip(begin.tolist(), end.tolist(), seconds.tolist(), *numbers, strict=True)
        return sorted((Block(*row) for row in rows), key=lambda block: block.start)


@dataclass(frozen=True, slots=True)
class Block:
    start: float
    end: float
    seconds: float  # in steps, without the pauses between them
    count: int
    first: int  # index of its first step
    last: int

    def share(self, interval: Interval) -> float:
        """Return how much of this block lies in the interval, 0 to 1."""
        both = min(self.end, interval[1]) - max(self.start, interval[0])
        if self.end <= self.start:
            return 1.0 if both >= 0 else 0.0
        return max(0.0, both) / (self.end - self.start)


@dataclass(slots=True)
class Timelines:
    """The steps of a run by kind: roles and stages have different durations."""

    kinds: dict[StepKind, StepTimes] = field(default_factory=dict)

    def extend(self, kind: StepKind, starts: FloatArray, ends: FloatArray, index: IntArray) -> None:
        times = self.kinds.get(kind)
        if times is None:
            times = self.kinds.setdefault(kind if len(self.kinds) < MAX_KINDS else OTHER_KINDS, StepTimes())
        times.extend(starts, ends, index)

    def steps_by(self, moment: float) -> float:
        """Return how many steps had ended by a moment; in part of those of a block that it falls into."""
        blocks = [block for times in self.kinds.values() for block in times.blocks() if block.start < moment]
        return sum(block.count if block.end <= moment else _ended(block, moment) for block in blocks)

    def effects(self, stretches: Sequence[Interval], watched: Interval) -> list[Effect]:
        """Return the effect of each stretch on the steps, compared with the steps outside all of them.

        Args:
            watched: the time in which the GPUs were looked at; steps beyond it are no measure.
        """
        if not stretches:
            return []
        merged = _merged(stretches)
        tables = [
            _Table(times.blocks(), merged, watched, like=kind != OTHER_KINDS) for kind, times in self.kinds.items()
        ]
        return [_joined([table.effect(stretch) for table in tables]) for stretch in stretches]


def _ended(block: Block, moment: float) -> float:
    return math.floor(block.count * (moment - block.start) / (block.end - block.start))


def _merged(stretches: Sequence[Interval]) -> list[Interval]:
    out: list[Interval] = []
    for start, end in sorted(stretches):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


class _Table:
    """The blocks of one kind of step, and their typical seconds outside all stretches."""

    def __init__(self, blocks: list[Block], merged: list[Interval], watched: Interval, like: bool) -> None:
        self.blocks = blocks
        self.starts = [block.start for block in blocks]
        self.longest = max((block.end - block.start for block in blocks), default=0.0)
        free = [
            block.seconds / block.count
            for block in blocks
            if block.share(watched) >= 1.0 and not any(block.share(stretch) > 0 for stretch in _near(merged, block))
        ]
        self.typical = _Middle(free) if like and len(free) >= MIN_BLOCKS_OUTSIDE else None

    def effect(self, stretch: Interval) -> tuple[Effect, float]:
        """Return the effect and the number of steps compared."""
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
        if self.typical is None or len(inside) < MIN_BLOCKS_INSIDE or self.typical.value <= 0:
            return counted, 0.0
        middle = _Middle([value for value, _ in inside])
        least, most = middle.low - self.typical.high, middle.high - self.typical.low
        if least <= 0.0 <= most and max(-least, most) > MAX_UNCERTAINTY * self.typical.value:
            return counted, 0.0
        change = middle.value - self.typical.value
        weight = float(sum(count for _, count in inside))
        return replace(counted, slower=change / self.typical.value), weight


def _near(merged: list[Interval], block: Block) -> list[Interval]:
    """Return the stretches that may touch this block."""
    first = max(0, bisect_left(merged, (block.start, block.start)) - 1)
    out = []
    for stretch in merged[first:]:
        if stretch[0] > block.end:
            break
        out.append(stretch)
    return out


class _Middle:
    """A median, and the values between which it may lie by chance: by ranks, so that steps of two speeds show it."""

    def __init__(self, values: list[float]) -> None:
        self.value = median(values)
        ordered, half = sorted(values), len(values) / 2
        reach = SIGMAS * len(values) ** 0.5 / 2
        self.low = ordered[max(0, math.floor(half - reach))]
        self.high = ordered[min(len(ordered) - 1, math.ceil(half + reach))]


def _joined(parts: list[tuple[Effect, float]]) -> Effect:
    """Return the effect over all kinds of step, weighted by their steps."""
    weight = sum(steps for _, steps in parts)
    slower = sum((effect.slower or 0.0) * steps for effect, steps in parts) / weight if weight else None
    return Effect(
        steps=sum(effect.steps for effect, _ in parts),
        seconds=sum(effect.seconds for effect, _ in parts),
        slower=slower,
        first=min((effect.first for effect, _ in parts if effect.first is not None), default=None),
        last=max((effect.last for effect, _ in parts if effect.last is not None), default=None),
    )


def seconds_in_steps(timelines: Timelines, parts: list[Interval], last_step: float | None) -> float:
    """Return the seconds of steps in these stretches, to the precision of the blocks."""
    parts = [part for part in parts if last_step is not None and part[0] < last_step]
    if not parts:
        return 0.0
    total = 0.0
    for times in timelines.kinds.values():
        blocks = times.blocks()
        starts = [block.start for block in blocks]
        longest = max((block.end - block.start for block in blocks), default=0.0)
        for part in parts:
            near = blocks[bisect_left(starts, part[0] - longest) : bisect_left(starts, part[1])]
            total += sum(block.seconds * block.share(part) for block in near)
    return total
