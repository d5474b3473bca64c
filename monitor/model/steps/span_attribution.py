"""The own time of spans that do not report it: those of a program that writes its journal itself. Pure.

Time belongs to a step first, then to the innermost span, which is the one that ended first. So such a span owns what
the spans before it and the steps left of it, and a step that is reported after it takes back what lies inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Interval = tuple[float, float]

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
        self._keep(*(SpanPiece(*stretch, name, True) for stretch in before))
        self._keep(*(SpanPiece(*stretch, name, False) for stretch in after))
        return after, sum(high - low for low, high in before)

    def hold(self, name: str, start: float, end: float) -> None:
        """Keep a span that owns all of its time, for steps that turn out to have begun before it."""
        self._keep(SpanPiece(start, end, name, False))

    def _keep(self, *pieces: SpanPiece) -> None:
        self.pieces += pieces
        self.pieces.sort(key=lambda piece: piece.end)
        del self.pieces[:-MAX_PIECES]

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
