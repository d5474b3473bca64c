"""Runs in pairs: what a change gains, with an interval, and what it does to the loss. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

MIN_PAIRS = 5  # with fewer, Student's t makes an interval that says nothing
# Student's t for 95% of both sides, by degrees of freedom.
T95 = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 14: 2.145}
LEAST_T95 = 2.145  # of more


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean over pairs, and the interval that holds the true one in 95 of 100 cases."""

    value: float
    low: float
    high: float
    pairs: int


def mean_of(values: Sequence[float]) -> Measured | None:
    """Return mean and interval of independent values; None where they are too few."""
    count = len(values)
    if count < MIN_PAIRS:
        return None
    margin = T95.get(count - 1, LEAST_T95) * stdev(values) / math.sqrt(count)
    mean = fmean(values)
    return Measured(mean, mean - margin, mean + margin, count)


def gain_of(pairs: Sequence[tuple[float, float]]) -> Measured | None:
    """Return how many times as fast the second of each pair is, by the seconds for the same work.

    The mean is that of the logarithms: twice as fast and half as fast cancel each other out.
    """
    found = mean_of([math.log(before / after) for before, after in pairs])
    if found is None:
        return None
    return Measured(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.pairs)


def loss_change(pairs: Sequence[tuple[float, float]]) -> Measured | None:
    """Return the relative difference of the losses; None where they are too few, or 0."""
    if any(before == 0.0 or not math.isfinite(before + after) for before, after in pairs):
        return None
    return mean_of([(after - before) / abs(before) for before, after in pairs])
