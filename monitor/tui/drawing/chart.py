"""Vertical axes whose limits are chosen so that round values fall on rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

MAX_LABEL_WIDTH = 7  # maximum cells of a label
LEAST_SCALE = 6  # rows needed for three labels; below, only the first and the last row have one
# Rows from which there are several distances between labels to choose from, so _NICE numbers suffice.
MANY_TICKS_HEIGHT = 9
MIN_TICKS, MAX_TICKS = 4, 5  # of a chart with room for them
_FOOT = 0.25  # of a row: a line's value at a tick is drawn in the second of the row's four dots, near its middle
_CLOSE = 1e-6  # of a row: rounding error
_NICE = (1.0, 2.0, 2.5, 5.0)
_EVEN = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # for axes of few rows


@dataclass(frozen=True)
class Axis:
    low: float  # at the lowest dot
    high: float  # at the highest
    labels: tuple[str, ...]  # one per row, from top to bottom; "" for none


@dataclass(frozen=True)
class _Rows:
    """The values of the rows: the lowest has `first * per_row`, each other one `per_row` more than the one below."""

    per_row: float
    first: int
    ticks: tuple[int, ...]  # the rows with a label, counted from the bottom

    def values(self) -> list[float]:
        return [self.per_row * (self.first + row) for row in self.ticks]

    def cost(self, height: int) -> float:
        """Return the span of the values; rows without a label at either end, except one, count twice."""
        bare = max(0, self.ticks[0] - 1) + max(0, height - 2 - self.ticks[-1])
        return self.per_row * (height + bare)


def linear(low: float, high: float, height: int, whole: bool = False) -> Axis:
    """Return an axis that holds `low` and `high`, with `whole` numbers as labels if that is possible."""
    best = _best(low, high, height, _FOOT, whole) or _best(low, high, height, _FOOT)
    if best is None:
        return _plain(low, high, height)
    start = (best.first - _FOOT) * best.per_row
    end = start + (height - _FOOT) * best.per_row
    return Axis(min(low, start), max(high, end), label_column(labeled(best.values()), best.ticks, height))


def column_axis(high: float, height: int) -> tuple[float, dict[int, float]]:
    """Return the value at the top edge of columns that start at 0, and round values at the lower edge of some rows."""
    best = _best(0.0, high, height, 0.0)
    if best is None:
        return high, {0: 0.0}
    return best.per_row * height, dict(zip(best.ticks, best.values(), strict=True))


def logarithmic(low: float, high: float, height: int) -> Axis:
    """Return an axis for decimal logarithms, labeled at powers of ten, or at round numbers if these are too few."""
    powers = linear(low, high, height)
    start, per_row = powers.low, (powers.high - powers.low) / (height - _FOOT)
    exact = [start + (_FOOT + row) * per_row for row in range(height)]
    labeled_rows = [(value, row) for row, value in enumerate(exact) if powers.labels[height - 1 - row]]
    if any(abs(value - round(value)) > _CLOSE for value, _ in labeled_rows):
        labeled_rows = _between(exact, per_row) or labeled_rows
    labels = [label(10.0**value) if abs(value) <= 300 else f"1e{value:+.0f}" for value, _ in labeled_rows]
    return Axis(start, powers.high, label_column(labels, [row for _, row in labeled_rows], height))


def _between(exact: Sequence[float], per_row: float) -> list[tuple[float, int]]:
    """Return logarithms of round numbers with their rows: at most a quarter of a row off, at least two rows apart."""
    height = len(exact)
    for parts in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        labeled_rows: list[tuple[float, int]] = []
        for row, value in enumerate(exact):
            near = [math.floor(value) + math.log10(part) for part in (*parts, 10)]
            nearest = min(near, key=lambda logarithm: abs(logarithm - value))
            if abs(nearest - value) <= per_row / 4 and (not labeled_rows or row - labeled_rows[-1][1] >= 2):
                labeled_rows.append((nearest, row))
        if len(labeled_rows) >= (3 if height >= LEAST_SCALE else 2) and labeled_rows[-1][1] >= height - 3:
            return labeled_rows
    return []


@lru_cache(maxsize=64)  # limits rarely change
def _best(low: float, high: float, height: int, foot: float, whole: bool = False) -> _Rows | None:
    """Return the rows that hold `low` to `high` and waste the least room; None if there are none."""
    span = high / 4 - low / 4  # quarters cannot overflow
    if height < 2 or not 1e-300 < span < 1e300 or not span > 1e-12 * max(abs(low), abs(high)):
        return None
    candidates: list[_Rows] = []
    least = 4 * span / height
    for per_row, gap in _heights(least, height):
        lowest = math.ceil(high / per_row - height + 2 * foot - _CLOSE)
        lowest = max(0, lowest) if low >= 0 else lowest  # no negative labels for values that are never negative
        for first in range(math.floor(low / per_row + foot + _CLOSE), lowest - 1, -1):
            begin = -first % gap if height >= LEAST_SCALE else 0
            ticks = tuple(range(begin, height, gap))
            if len(ticks) >= (3 if height >= LEAST_SCALE else 2):
                candidates.append(_Rows(per_row, first, ticks))
    if whole:
        candidates = [rows for rows in candidates if all(abs(value - round(value)) < _CLOSE for value in rows.values())]
    if height >= MANY_TICKS_HEIGHT:
        candidates = [rows for rows in candidates if len(rows.ticks) >= MIN_TICKS] or candidates
    return min(candidates, key=lambda rows: rows.cost(height), default=None)


def _heights(least: float, height: int) -> Iterator[tuple[float, int]]:
    """Yield possible values per row, at least `least`, with the number of rows between two labels."""
    if height < LEAST_SCALE:
        for step in _round_from(least, _EVEN):
            yield step, height - 1
        return
    for gap in range(max(2, -(-height // MAX_TICKS)), (height - 1) // 2 + 1):
        for step in _round_from(least * gap, _NICE if height >= MANY_TICKS_HEIGHT else _EVEN):
            yield step / gap, gap


def _round_from(least: float, parts: Sequence[float]) -> list[float]:
    """Return the round numbers from `least` to three times that."""
    power = 10.0 ** math.floor(math.log10(least))
    numbers = [part * power * ten for ten in (1, 10) for part in parts]
    return [number for number in numbers if least * (1 - 1e-9) <= number <= 3 * least]


def _plain(low: float, high: float, height: int) -> Axis:
    """Return an axis with labels at its first and its last row, round or not."""
    rows = (0, height - 1) if height > 1 else (0,)
    parts = [(row + _FOOT) / (height - _FOOT) for row in rows]
    values = [low * (1 - part) + high * part for part in parts]  # without `high - low`, which could overflow
    return Axis(low, high, label_column(labeled(values), rows, height))


def label_column(labels: Sequence[str], rows: Sequence[int], height: int) -> tuple[str, ...]:
    """Return one label per row, from top to bottom; `rows` are counted from the bottom."""
    by_row = dict(zip(rows, labels, strict=True))
    return tuple(by_row.get(row, "") for row in reversed(range(height)))


def labeled(values: Sequence[float]) -> list[str]:
    """Return the values as text, with enough digits to distinguish them."""
    step = min((after - before for before, after in pairwise(values)), default=0.0)
    digits = max((_digits(value, step) for value in values), default=0) if values else 0
    return [label(value, step, digits) for value in values]


def _digits(value: float, step: float) -> int:
    """Return how many decimals of a value an axis with this step needs."""
    return next((digits for digits in range(5) if abs(round(value, digits) - value) < step / 1000), 5)


def label(value: float, step: float = 0.0, digits: int = 0) -> str:
    """Return a value in at most about LABEL cells, with `digits` decimals if they fit."""
    if abs(value) < step / 1000:
        return "0"
    if step > 1e-4 and abs(value) < 1e5 and len(text := f"{value:,.{digits}f}") <= MAX_LABEL_WIDTH:
        return text
    if 100 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    for unit, factor in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if 1e5 <= abs(value) < 1000 * factor:
            return f"{value / factor:,.4g}{unit}"
    return f"{value:.3g}".replace("e-0", "e-")
