"""Steps as fast, normal and slow, by bounds that a person sets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FAST, NORMAL, SLOW = "fast", "normal", "slow"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds a step: up to `fast` it is fast, from `slow` on it is slow."""

    fast: float
    slow: float

    def of(self, seconds: float) -> str:
        return FAST if seconds <= self.fast else SLOW if seconds >= self.slow else NORMAL


@dataclass(frozen=True, slots=True)
class SpeedClasses:
    """Counted in bins 2 % wide: a step that close to a bound may fall on the other side."""

    fast_seconds: float
    slow_seconds: float
    fast: int
    normal: int
    slow: int


def counted(bins: Mapping[int, int], zeros: int, width: float, bounds: Bounds) -> SpeedClasses:
    """How many of the steps are of each class.

    Args:
        bins: the sketch of their seconds: counts between width**n and width**(n + 1).
        zeros: steps that took no time.
    """
    kinds = {FAST: zeros, NORMAL: 0, SLOW: 0}
    for number, count in bins.items():
        kinds[bounds.of(width ** (number + 0.5))] += count
    return SpeedClasses(bounds.fast, bounds.slow, kinds[FAST], kinds[NORMAL], kinds[SLOW])
