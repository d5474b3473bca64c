"""Steps as fast, normal and slow, by bounds that the user sets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FAST, NORMAL, SLOW = "fast", "normal", "slow"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds a step: fast up to `fast`, slow from `slow` on."""

    fast: float
    slow: float

    def of(self, seconds: float) -> str:
        return FAST if seconds <= self.fast else SLOW if seconds >= self.slow else NORMAL


@dataclass(frozen=True, slots=True)
class SpeedClasses:
    """The number of steps in each class. Bins are 2% wide: steps that close to a bound may be misclassified."""

    fast_seconds: float
    slow_seconds: float
    fast: int
    normal: int
    slow: int


def counted(bins: Mapping[int, int], zeros: int, width: float, bounds: Bounds) -> SpeedClasses:
    """Return the number of steps in each class.

    Args:
        bins: n -> the number of steps between width**n and width**(n + 1) seconds.
        zeros: steps that took no time.
    """
    kinds = {FAST: zeros, NORMAL: 0, SLOW: 0}
    for number, count in bins.items():
        kinds[bounds.of(width ** (number + 0.5))] += count
    return SpeedClasses(
        fast_seconds=bounds.fast, slow_seconds=bounds.slow, fast=kinds[FAST], normal=kinds[NORMAL], slow=kinds[SLOW]
    )
