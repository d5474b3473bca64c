"""Upright axes whose labels stand exactly beside their values: limits are moved until round values meet rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

LABEL = 7  # cells of a label at most
LEAST_SCALE = 6  # rows from which on three labels have room; below, only the first and the last row have one
TALL = 9  # rows from which on there is a choice of distances between labels, so that the roundest numbers are enough
MOST_TICKS = 7
_FOOT = 0.25  # of a row: a line's value at a tick is drawn in the second of the row's four dots, near its middle
_CLOSE = 1e-6  # of a row: what arithmetic leaves of none
_NICE = (1.0, 2.0, 2.5, 5.0)
_EVEN = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # where there are few rows


@dataclass(frozen=True)
class Axis:
    low: float  # at the lowest dot
    high: float  # at the highest
    labels: tuple[str, ...]  # one a row, the highest first; "" where there is none


@dataclass(frozen=True)
class _Rows:
    """Rows that stand for `each` more than the one below; the lowest for `first` times that."""

    each: float
    first: int
    ticks: tuple[int, ...]  # the rows that have a label, counted from below

    def values(self) -> list[float]:
        return [self.each * (self.first + row) for row in self.ticks]

    def cost(self, height: int) -> float:
        """The values they span; rows without a label at an end count twice, all but one."""
        bare = max(0, self.ticks[0] - 1) + max(0, height - 2 - self.ticks[-1])
        return self.each * (height + bare)


def linear(low: float, high: float, height: int, whole: bool = False) -> Axis:
    """An axis for a line, wide enough for `low` and `high`; with labels in `whole` numbers, if that is possible."""
    best = _best(low, high, height, _FOOT, whole) or _best(low, high, height, _FOOT)
    if best is None:
        return _plain(low, high, height)
    start = (best.first - _FOOT) * best.each
    end = start + (height - _FOOT) * best.each
    return Axis(min(low, start), max(high, end), beside_rows(labelled(best.values()), best.ticks, height))


def grounded(high: float, height: int) -> tuple[float, dict[int, float]]:
    """For columns on the ground: what the top edge stands for, and the round value at the lower edge of some rows."""
    best = _best(0.0, high, height, 0.0)
    if best is None:
        return high, {0: 0.0}
    return best.each * height, dict(zip(best.ticks, best.values(), strict=True))


def logarithmic(low: float, high: float, height: int) -> Axis:
    """An axis for decimal logarithms: whole powers of ten, where there are few what lies between and meets a row."""
    powers = linear(low, high, height)
    start, each = powers.low, (powers.high - powers.low) / (height - _FOOT)
    exact = [start + (_FOOT + row) * each for row in range(height)]
    told = [(value, row) for row, value in enumerate(exact) if powers.labels[height - 1 - row]]
    if any(abs(value - round(value)) > _CLOSE for value, _ in told):
        told = _between(exact, each) or told
    labels = [label(10.0**value) if abs(value) <= 300 else f"1e{value:+.0f}" for value, _ in told]
    return Axis(start, powers.high, beside_rows(labels, [row for _, row in told], height))


def _between(exact: Sequence[float], each: float) -> list[tuple[float, int]]:
    """Logarithms of round numbers, each within a quarter of a row of its row's middle, and two rows apart."""
    height = len(exact)
    for parts in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        found: list[tuple[float, int]] = []
        for row, value in enumerate(exact):
            near = [math.floor(value) + math.log10(part) for part in (*parts, 10)]
            nearest = min(near, key=lambda one: abs(one - value))
            if abs(nearest - value) <= each / 4 and (not found or row - found[-1][1] >= 2):
                found.append((nearest, row))
        if len(found) >= (3 if height >= LEAST_SCALE else 2) and found[-1][1] >= height - 3:
            return found
    return []


@lru_cache(maxsize=64)  # limits seldom move
def _best(low: float, high: float, height: int, foot: float, whole: bool = False) -> _Rows | None:
    """The rows that hold all from `low` to `high` and lose the least room."""
    span = high / 4 - low / 4  # so that it cannot overflow
    if height < 2 or not 1e-300 < span < 1e300 or not span > 1e-12 * max(abs(low), abs(high)):
        return None
    found: list[_Rows] = []
    least = 4 * span / height
    for each, gap in _heights(least, height):
        lowest = math.ceil(high / each - height + 2 * foot - _CLOSE)
        lowest = max(0, lowest) if low >= 0 else lowest  # no count is below nothing
        for first in range(math.floor(low / each + foot + _CLOSE), lowest - 1, -1):
            begin = -first % gap if height >= LEAST_SCALE else 0
            ticks = tuple(range(begin, height, gap))
            if len(ticks) >= (3 if height >= LEAST_SCALE else 2):
                found.append(_Rows(each, first, ticks))
    fit = (rows for rows in found if not whole or all(abs(each - round(each)) < _CLOSE for each in rows.values()))
    return min(fit, key=lambda rows: rows.cost(height), default=None)


def _heights(least: float, height: int) -> Iterator[tuple[float, int]]:
    """What a row may stand for, at least `least`, and how many rows apart the labels are then."""
    if height < LEAST_SCALE:
        for each in _round_from(least, _EVEN):
            yield each, height - 1
        return
    for gap in range(max(2, -(-height // MOST_TICKS)), (height - 1) // 2 + 1):
        for step in _round_from(least * gap, _NICE if height >= TALL else _EVEN):
            yield step / gap, gap


def _round_from(least: float, parts: Sequence[float]) -> list[float]:
    """The round numbers from `least` to thrice as much."""
    power = 10.0 ** math.floor(math.log10(least))
    numbers = [part * power * ten for ten in (1, 10) for part in parts]
    return [number for number in numbers if least * (1 - 1e-9) <= number <= 3 * least]


def _plain(low: float, high: float, height: int) -> Axis:
    """An axis that tells what its first and its last row stand for, round or not."""
    rows = (0, height - 1) if height > 1 else (0,)
    parts = [(row + _FOOT) / (height - _FOOT) for row in rows]
    values = [low * (1 - part) + high * part for part in parts]  # no difference of the two, so that it cannot overflow
    return Axis(low, high, beside_rows(labelled(values), rows, height))


def beside_rows(labels: Sequence[str], rows: Sequence[int], height: int) -> tuple[str, ...]:
    """Each label in its row, counted from below."""
    told = dict(zip(rows, labels, strict=True))
    return tuple(told.get(row, "") for row in reversed(range(height)))


def labelled(values: Sequence[float]) -> list[str]:
    """Values with as many digits as tell them apart."""
    step = min((two - one for one, two in pairwise(values)), default=0.0)
    digits = max((_digits(value, step) for value in values), default=0) if values else 0
    return [label(value, step, digits) for value in values]


def _digits(value: float, step: float) -> int:
    """Digits behind the point that a value has, as far as its axis needs them."""
    return next((digits for digits in range(5) if abs(round(value, digits) - value) < step / 1000), 5)


def label(value: float, step: float = 0.0, digits: int = 0) -> str:
    """A value in few cells, with so many digits behind the point where they fit."""
    if abs(value) < step / 1000:
        return "0"
    if step > 1e-4 and abs(value) < 1e5 and len(text := f"{value:,.{digits}f}") <= LABEL:
        return text
    if 100 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    for unit, factor in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if 1e5 <= abs(value) < 1000 * factor:
            return f"{value / factor:,.4g}{unit}"
    return f"{value:.3g}".replace("e-0", "e-")
