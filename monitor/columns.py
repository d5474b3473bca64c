"""Arithmetic of columns: a few numbers in a list, many in an array. Either way the same to the last bit. Pure.

Numbers in a list lie apart in memory; a long history, each of its numbers looked at several times, waits for memory
more than for the processor. So its columns are put into arrays, and numpy is loaded for those alone: for fewer steps
that takes longer than they do.
"""

from __future__ import annotations

import operator
import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Self

    _Floats: TypeAlias = array[float]
    _Integers: TypeAlias = array[int]
else:  # before Python 3.12 it takes no parameter
    _Floats = _Integers = array

Column = Any  # a list, or a numpy array of whole numbers or floats
LARGEST = 2.0**62  # an array's whole numbers are no larger; this leaves room for how a float rounds
THREADS = "OPENBLAS_NUM_THREADS"


class Floats(_Floats):
    """A list of floats for what is kept for long: eight bytes each, and not four times as many."""

    __slots__ = ()

    def __new__(cls, values: Iterable[float] = ()) -> Self:
        return cast("Self", super().__new__(cls, "d", values))


class Integers(_Integers):
    """The same of whole numbers, up to 2**63."""

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> Self:
        return cast("Self", super().__new__(cls, "q", values))


@cache
def numpy() -> Any:
    """numpy, without the threads that it begins for linear algebra when it is loaded: as many as there are cores."""
    told = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        import numpy
    finally:
        del os.environ[THREADS]
        if told is not None:
            os.environ[THREADS] = told
    return numpy


@cache
def available() -> bool:
    """Whether there is a numpy that will do. A training's environment may hold an older one, or none, and keeps it."""
    try:
        return hasattr(numpy(), "bitwise_count")
    except Exception:  # one that was built for another machine may raise anything
        return False


def is_array(values: Any) -> bool:
    return hasattr(values, "dtype")


def as_array(values: Column, of: type = float) -> Column:
    """An array of these numbers; the list itself where some are not known."""
    if is_array(values):
        return values
    try:  # numpy itself takes twice as long over a list
        return numpy().frombuffer(struct.pack(f"{len(values)}{'q' if of is int else 'd'}", *values), of)
    except struct.error:
        return values


def as_list(values: Any) -> list[Any]:
    """The numbers as Python's own, which is what a state keeps."""
    found: list[Any] = values.tolist() if is_array(values) else list(values)
    return found


def joined(columns: Sequence[Column], of: type = float) -> Column:
    """One column after the other: an array where some is one, and all of them can be."""
    if any(map(is_array, columns)):
        columns = [as_array(each, of) for each in columns]
        if all(map(is_array, columns)):
            return numpy().concatenate(columns)
    return list(chain.from_iterable(map(as_list, columns)))


def in_a_row(numbers: Column) -> Sequence[int]:
    """Whole numbers, as a range where they follow each other."""
    following = range(int(numbers[0]), int(numbers[0]) + len(numbers))
    if is_array(numbers):
        alike = bool((numbers == numpy().arange(following.start, following.stop)).all())
    else:
        alike = numbers == list(following)
    return following if alike else as_list(numbers)


def floats(values: Column) -> Column:
    return values.astype(float) if is_array(values) else list(map(float, values))


def plus(one: Column, other: Column) -> Column:
    return one + other if is_array(one) else list(map(operator.add, one, other))


def minus(one: Column, other: Column) -> Column:
    return one - other if is_array(one) else list(map(operator.sub, one, other))


def exceeds(one: Column, other: Column) -> bool:
    """Whether some value is greater than the one beside it."""
    return bool((one > other).any()) if is_array(one) else any(map(operator.gt, one, other))


def most(values: Column) -> float:
    return float(values.max()) if is_array(values) else max(values)


def total(values: Column, start: float = 0.0) -> float:
    """The values added up one after the other: sum() may round by how many there are at once."""
    if not is_array(values):
        return reduce(operator.add, values, start)
    values = values.copy()
    with numpy().errstate(all="ignore"):
        values[:1] += start
        return float(values.cumsum()[-1])


def rising(before: int, values: Column) -> Sequence[int]:
    """Whole numbers added to what was there before, up to each of them."""
    if is_array(values) and before + float(values.max()) * len(values) < LARGEST:
        found: Sequence[int] = values.cumsum() + before
        return found
    return list(accumulate(as_list(values), initial=before))[1:]


def ordered(values: Column) -> Column:
    """From the least to the most. Of an array of two dimensions, each column by itself."""
    if not is_array(values):
        return sorted(values)
    values = values.copy()
    values.sort(axis=0)
    return values


def windows(values: Column, size: int, every: int) -> Column:
    """An array's windows of that size, one `every` so many values: each a column, in order."""
    return ordered(numpy().lib.stride_tricks.sliding_window_view(values, size)[::every].T)


def constant(value: float, count: int) -> Column:
    """An array of the same number."""
    return numpy().full(count, value)


def before(values: Column, first: float) -> Column:
    """Of each place the value before it; before the first one it is `first`."""
    if not is_array(values):
        return [first, *values[:-1]]
    shifted = values.copy()
    shifted[1:] = values[:-1]
    shifted[0] = first
    return shifted


@dataclass(slots=True)
class Pieces:
    """An array's values in parts of one size: the sum of each, the least, and the most."""

    size: int
    total: Column
    low: Column
    high: Column

    def __len__(self) -> int:
        return len(self.total)

    def one(self, at: int) -> tuple[int, float, float, float]:
        return self.size, float(self.total[at]), float(self.low[at]), float(self.high[at])

    def counts(self) -> list[int]:
        return [self.size] * len(self)

    def finite(self) -> bool:
        return bool(numpy().isfinite(self.total).all())

    def joined(self, first: int, count: int, each: int) -> Pieces:
        """From one on so many, each made of some of these."""
        total, low, high = (
            column[first : first + count * each].reshape(count, each) for column in (self.total, self.low, self.high)
        )
        return Pieces(self.size * each, total.cumsum(axis=1)[:, -1], low.min(axis=1), high.max(axis=1))


def summaries(values: Column, size: int) -> Pieces:
    """An array in parts of so many values, each added up as `total` does."""
    rows = values.reshape(-1, size)
    with numpy().errstate(all="ignore"):
        sums = rows.cumsum(axis=1)[:, -1] + 0.0  # of 0.0 and -0.0, which are equal, either may be found
    return Pieces(size, sums, rows.min(axis=1) + 0.0, rows.max(axis=1) + 0.0)
