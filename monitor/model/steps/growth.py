"""Whether a quantity grows along the steps: a slope that outliers do not move, with its interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

MAX_POINTS = 64  # points compared in pairs, 2,016 at most; more add nothing to the interval
MIN_POINTS = 7  # of fewer, not even a rise from each to the next is beyond three standard errors
# Standard errors on each side of the slope. Points of one run are not independent, and a run is judged again and again:
# so far more than the usual two.
SIGMAS = 3.0


@dataclass(frozen=True, slots=True)
class Slope:
    """A rise per unit of x (Theil-Sen) and its interval (Sen, by the variance of Kendall's count)."""

    rate: float
    low: float
    high: float

    @property
    def rises(self) -> bool:
        """Return whether the rise is none that chance makes."""
        return self.low > 0.0


def slope(points: Sequence[tuple[float, float]], sigmas: float = SIGMAS) -> Slope | None:
    """Return the slope of y over x; None where there are too few points to tell a rise from chance.

    Args:
        sigmas: standard errors on each side.
    """
    thinned = _thinned(points)
    slopes = sorted(
        (b[1] - a[1]) / (b[0] - a[0]) for at, a in enumerate(thinned) for b in thinned[at + 1 :] if b[0] > a[0]
    )
    n = len(thinned)
    if n < MIN_POINTS or not slopes:
        return None
    spread = sigmas * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    left_out = math.floor((len(slopes) - spread) / 2)  # on either side
    if left_out < 0:  # so many points have the same x that any slope is possible
        return Slope(median(slopes), -math.inf, math.inf)
    return Slope(median(slopes), slopes[left_out], slopes[-1 - left_out])


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MAX_POINTS points: medians of neighbors."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = -(-len(points) // MAX_POINTS)
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(median(x for x, _ in part), median(y for _, y in part)) for part in parts]


MIN_LEVEL = 4  # values on each side of a jump
FLAT = 0.15  # of the jump: as much as each side's two halves may differ


def is_jump(values: Sequence[float]) -> bool:
    """Return whether values rise once, from one level to another, and not gradually: 1 1 1 2 2 2."""
    known = [value for value in values if value == value]
    sums = [0.0, *accumulate(known)]
    count, total = len(known), sums[-1]
    splits = range(MIN_LEVEL, count - MIN_LEVEL + 1)
    if not splits:
        return False
    # The squares within both sides are least where this is largest.
    at = max(splits, key=lambda split: sums[split] ** 2 / split + (total - sums[split]) ** 2 / (count - split))
    before, after = known[:at], known[at:]
    rise = median(after) - median(before)
    return rise > 0 and all(_halves_differ(part) <= FLAT * rise for part in (before, after))


def _halves_differ(values: Sequence[float]) -> float:
    middle = len(values) // 2
    return abs(median(values[middle:]) - median(values[:middle]))
