"""The steps during a GPU's throttle events, and how much slower they were than the others. Pure.

Steps and GPU readings come from different journals in any order: a late reader sees all steps first. So the steps
are kept as blocks with their times and compared on demand.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import add, sub
from statistics import median

from monitor.model.steps.baseline import OTHER_KINDS, StepKind
from monitor.step_columns import Floats, Integers

MAX_BLOCKS = 2048  # an hour in blocks of two seconds, a day in blocks of less than a minute and a half
CHUNK = 256  # steps added at once, by one call for all of them
MAX_KINDS = 8  # roles and stages that are compared; further ones are only counted
MIN_BLOCKS_INSIDE, MIN_BLOCKS_OUTSIDE = 5, 10  # blocks of steps inside and outside, for a reliable median
SIGMAS = 3.0  # standard deviations of the median's rank
MAX_UNCERTAINTY = 0.05  # of a step: a comparison this precise is shown, even if nothing changed

Interval = tuple[float, float]
Timed = tuple[float, float, int]  # a step: its begin, its end, its index


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
        """Add steps. The result is as if they were added one by one: chunks have the same boundaries."""
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
        """Return these times with nothing waiting; call it before reading them."""
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
        """Join blocks in pairs: half as many of twice the steps."""
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
        """Return how much of this block lies in the interval, 0 to 1."""
        both = min(self.end, interval[1]) - max(self.start, interval[0])
        if self.end <= self.start:
            return 1.0 if both >= 0 else 0.0
        return max(0.0, both) / (self.end - self.start)


@dataclass(slots=True)
class Timelines:
    """The steps of a run by kind: roles and stages have different durations."""

    kinds: dict[StepKind, StepTimes] = field(default_factory=dict)

    def add(self, kind: StepKind, start: float, end: float, index: int) -> None:
        self.extend(kind, [start], [end], [index])

    def extend(self, kind: StepKind, starts: Sequence[float], ends: Sequence[float], index: Sequence[int]) -> None:
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


# Spans that do not report their own time: those of a program that writes its journal itself.
#
# Time belongs to a step first, then to the innermost span, which is the one that ended first. So such a span owns what
# the spans before it and the steps left of it, and a step that is reported after it takes back what lies inside.

MAX_PIECES = 256  # the newest: an outer span that ends after more inner ones than these claims some of theirs, too
ROUNDING = 1e-9  # seconds


@dataclass(slots=True)
class SpanPiece:
    """A stretch of time that belongs to a span, except for the steps in it."""

    start: float
    end: float
    name: str
    startup: bool


@dataclass(slots=True)
class SpanAttribution:
    """The newest pieces of such spans, in the order of their ends."""

    pieces: list[SpanPiece] = field(default_factory=list)

    def reach(self, moment: float) -> bool:
        """Return whether some of it lies after this moment."""
        return bool(self.pieces) and self.pieces[-1].end > moment

    def claim(self, name: str, start: float, end: float, first_step: float | None) -> tuple[list[Interval], float]:
        """Claim what no span has claimed yet: the stretches since the first step, and the seconds before it."""
        free = [(start, end)]
        for piece in reversed(self.pieces):
            if piece.end <= start:
                break
            free = [part for stretch in free for part in _without(stretch, piece.start, piece.end)]
        border = end if first_step is None else first_step
        before = [(low, min(high, border)) for low, high in free if low < border]
        after = [(max(low, border), high) for low, high in free if high > border]
        self.pieces += [SpanPiece(*stretch, name, True) for stretch in before] + [
            SpanPiece(*stretch, name, False) for stretch in after
        ]
        self.pieces.sort(key=lambda piece: piece.end)
        del self.pieces[:-MAX_PIECES]
        return after, sum(high - low for low, high in before)

    def take_back(self, steps: Iterable[Interval], take: Callable[[SpanPiece, float], None]) -> None:
        """Return time to steps: call `take` for each piece with the seconds that belong to steps."""
        for start, end in steps:
            if not self.reach(start):
                return
            for piece in reversed(self.pieces):
                if piece.end <= start:
                    break
                inside = min(end, piece.end) - max(start, piece.start)
                if inside > ROUNDING:
                    take(piece, inside)


def _without(part: Interval, start: float, end: float) -> list[Interval]:
    if end <= part[0] or part[1] <= start:
        return [part]
    left, right = (part[0], start), (end, part[1])
    return [side for side in (left, right) if side[1] - side[0] > ROUNDING]


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
