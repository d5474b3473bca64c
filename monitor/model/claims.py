"""Spans that do not say what part of them is their own: those of a program that prints its journal itself. Pure.

Time belongs to a step first, then to the innermost span, which is the one that ended first. So such a span owns what
the spans before it and the steps left of it, and a step that is told after it takes back what lies inside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from monitor.model.overlap import Interval, Timelines

MAX_PIECES = 256  # the newest: an outer span that ends after more inner ones than these claims some of theirs, too
ROUNDING = 1e-9  # seconds


@dataclass(slots=True)
class Piece:
    """A stretch that counts as that span's, but for the steps inside."""

    start: float
    end: float
    name: str
    startup: bool


@dataclass(slots=True)
class Claims:
    """The newest of these spans, in the order of their ends."""

    pieces: list[Piece] = field(default_factory=list)

    def reach(self, moment: float) -> bool:
        """Whether some of it lies after this moment."""
        return bool(self.pieces) and self.pieces[-1].end > moment

    def claim(self, name: str, start: float, end: float, first_step: float | None) -> tuple[list[Interval], float]:
        """Claim what no span has claimed yet: the stretches since the first step, and the seconds before it."""
        free = [(start, end)]
        for piece in reversed(self.pieces):
            if piece.end <= start:
                break
            free = [part for each in free for part in _without(each, piece.start, piece.end)]
        border = end if first_step is None else first_step
        before = [(low, min(high, border)) for low, high in free if low < border]
        after = [(max(low, border), high) for low, high in free if high > border]
        self.pieces += [Piece(*each, name, True) for each in before] + [Piece(*each, name, False) for each in after]
        self.pieces.sort(key=lambda piece: piece.end)
        del self.pieces[:-MAX_PIECES]
        return after, sum(high - low for low, high in before)

    def take_back(self, steps: Iterable[Interval], take: Callable[[Piece, float], None]) -> None:
        """Steps that were told now: `take` is called for each piece with the seconds that were theirs all along."""
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
    return [each for each in (left, right) if each[1] - each[0] > ROUNDING]


def seconds_in_steps(timelines: Timelines, parts: list[Interval], last_step: float | None) -> float:
    """How much of these stretches the steps so far took; of a long run's steps as close as its blocks are."""
    parts = [each for each in parts if last_step is not None and each[0] < last_step]
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
