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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import accumulate, chain, compress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainhooks.protocol.events import Step

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
    """A compact list of floats to keep: eight bytes a value, a quarter of a list's."""

    __slots__ = ()

    def __new__(cls, values: Iterable[float] = ()) -> Self:
        return cast("Self", super().__new__(cls, "d", values))


class Integers(_Integers):
    """The same for whole numbers below 2**63."""

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> Self:
        return cast("Self", super().__new__(cls, "q", values))


@cache
def numpy() -> Any:
    """Return numpy, loaded without the linear algebra threads that it would start, one for each core."""
    threads = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        import numpy
    finally:
        del os.environ[THREADS]
        if threads is not None:
            os.environ[THREADS] = threads
    return numpy


@cache
def available() -> bool:
    """Return whether numpy 2 or later is installed. It is no dependency: an environment keeps the one that it has."""
    try:
        return hasattr(numpy(), "bitwise_count")
    except Exception:  # one that was built for another machine may raise anything
        return False


def is_array(values: Any) -> bool:
    return hasattr(values, "dtype")


def as_array(values: Column, of: type = float) -> Column:
    """Return an array of these numbers; the list itself where some are not known."""
    if is_array(values):
        return values
    try:  # numpy itself takes twice as long over a list
        return numpy().frombuffer(struct.pack(f"{len(values)}{'q' if of is int else 'd'}", *values), of)
    except struct.error:
        return values


def as_list(values: Any) -> list[Any]:
    """Return the numbers as Python's own, which is what a state keeps."""
    numbers: list[Any] = values.tolist() if is_array(values) else list(values)
    return numbers


def joined(columns: Sequence[Column], of: type = float) -> Column:
    """Concatenate columns: an array where one of them is an array and all can be."""
    if any(map(is_array, columns)):
        columns = [as_array(column, of) for column in columns]
        if all(map(is_array, columns)):
            return numpy().concatenate(columns)
    return list(chain.from_iterable(map(as_list, columns)))


def in_a_row(numbers: Column) -> Sequence[int]:
    """Return whole numbers, as a range where they are consecutive."""
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
    """Return whether some value is greater than the one beside it."""
    return bool((one > other).any()) if is_array(one) else any(map(operator.gt, one, other))


def most(values: Column) -> float:
    return float(values.max()) if is_array(values) else max(values)


def total(values: Column, start: float = 0.0) -> float:
    """Return the values added up one after the other: sum() may round by how many there are at once."""
    if not is_array(values):
        return reduce(operator.add, values, start)
    values = values.copy()
    with numpy().errstate(all="ignore"):
        values[:1] += start
        return float(values.cumsum()[-1])


def rising(before: int, values: Column) -> Sequence[int]:
    """Return the running sums of whole numbers, starting from `before`."""
    if is_array(values) and before + float(values.max()) * len(values) < LARGEST:
        numbers: Sequence[int] = values.cumsum() + before
        return numbers
    return list(accumulate(as_list(values), initial=before))[1:]


def ordered(values: Column) -> Column:
    """Return the values in ascending order; a 2-D array is sorted column by column."""
    if not is_array(values):
        return sorted(values)
    values = values.copy()
    values.sort(axis=0)
    return values


def windows(values: Column, size: int, every: int) -> Column:
    """Return an array's windows of that size, one `every` so many values: each a column, in order."""
    return ordered(numpy().lib.stride_tricks.sliding_window_view(values, size)[::every].T)


def before(values: Column, first: float) -> Column:
    """Shift by one: each place gets the value before it, the first place `first`."""
    if not is_array(values):
        return [first, *values[:-1]]
    shifted = values.copy()
    shifted[1:] = values[:-1]
    shifted[0] = first
    return shifted


@dataclass(slots=True)
class Pieces:
    """An array in pieces of one size: the sum, minimum and maximum of each piece."""

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

    def joined(self, first: int, count: int, group: int) -> Pieces:
        """Join `count` groups of `group` pieces, from piece `first` on."""
        total, low, high = (
            column[first : first + count * group].reshape(count, group) for column in (self.total, self.low, self.high)
        )
        return Pieces(self.size * group, total.cumsum(axis=1)[:, -1], low.min(axis=1), high.max(axis=1))


def summaries(values: Column, size: int) -> Pieces:
    """Return the pieces of an array, `size` values in each, added up as `total` does."""
    rows = values.reshape(-1, size)
    with numpy().errstate(all="ignore"):
        sums = rows.cumsum(axis=1)[:, -1] + 0.0  # of 0.0 and -0.0, which are equal, either may be returned
    return Pieces(size, sums, rows.min(axis=1) + 0.0, rows.max(axis=1) + 0.0)


# Batches: consecutive steps as columns, so that adding them up is fast.
#
# The fold takes batches; a single step is a batch of one.

T = TypeVar("T")


@dataclass(slots=True)
class StepPattern:
    """The steps of a batch that have the same phases in the same order."""

    names: tuple[str, ...]
    clocks: tuple[str, ...]
    seconds: list[Column]  # a column for each name
    at: list[int] | None = None  # their places in the batch; None: all of it


@dataclass(slots=True)
class StepBatch:
    """Consecutive steps of one process with the same role, stage, thread and status, all timed or none."""

    rows: Sequence[Any]  # steps, or objects with their attributes: for what few programs report
    index: Sequence[int]  # a range where they are consecutive
    t: Column  # the columns are lists or arrays, all of these four alike
    start: Column
    duration: Column
    phases: list[StepPattern]
    tokens: Column | None = None  # None: not counted in any
    samples: Column | None = None
    metrics: dict[str, Column] = field(default_factory=dict)  # None where a step lacks it
    rare: bool = False  # some step has lengths, padding, calls of the model or other threads' phases, or is not counted
    as_step: Callable[[Any], Step] = lambda row: row
    again: Callable[[], Sequence[Any]] | None = None  # makes the rows once more, so that they need not be kept

    @property
    def producer(self) -> str:
        return str(self.rows[0].producer)

    @property
    def first(self) -> Any:
        return self.rows[0]

    def __len__(self) -> int:
        return len(self.index)

    def steps(self, first: int, end: int) -> Iterator[Step]:
        """Return the steps from one position up to another, as events."""
        return map(self.as_step, self.rows[first:end])

    def singles(self) -> Iterator[StepBatch]:
        """Return the same, each step for itself: for where the order between columns matters."""
        return (single(step) for step in self.steps(0, len(self)))


def single(step: Step) -> StepBatch:
    """Return a batch of one step."""
    names = tuple([row[0] for row in step.phases])
    pattern = StepPattern(names, tuple([row[2] for row in step.phases]), [[row[1]] for row in step.phases])
    return StepBatch(
        [step],
        [step.index],
        [step.t],
        [step.start],
        [step.duration],
        [pattern],
        None if step.tokens is None else [step.tokens],
        None if step.samples is None else [step.samples],
        {name: [value] for name, value in step.metrics.items()},
        any(
            value is not None
            for value in (step.padded_tokens, step.lengths, step.forwards, step.uncounted, step.odd_parts)
        )
        or bool(step.background),
    )


def known(values: Sequence[T | None], *beside: Sequence[Any]) -> tuple[Sequence[T], list[Sequence[Any]]]:
    """Return the values without those that are None, and what lies beside them in other columns."""
    if is_array(values) or None not in values:
        return cast("Sequence[T]", values), list(beside)
    there = [value is not None for value in values]
    return cast("list[T]", list(compress(values, there))), [list(compress(as_list(column), there)) for column in beside]


def append_all(kept: list[T], count: int, rows: Callable[[int, int], Iterator[T]], most: int, cut: int) -> None:
    """Append `count` rows, as if one by one; whenever there are more than `most`, drop the oldest `cut`.

    Args:
        rows: returns those from one position up to another; called only for rows that are kept.
    """
    length = len(kept) + count
    if length > most:
        length -= -((most - length) // cut) * cut
    new = min(count, length)
    kept.extend(rows(count - new, count))
    del kept[: len(kept) - length]


# The phases of steps as parts that add up to each step.

OTHER = "other"  # inside a step, in no phase


@dataclass(slots=True)
class Parts:
    """The parts of those steps of a batch that went through the same phases; `other` is one of them."""

    seconds: dict[str, Column]  # in order of occurrence
    clocks: dict[str, str]
    at: Sequence[int]  # the steps' places in the batch, rising

    def rows(self, first: int, end: int) -> list[tuple[int, dict[str, float]]]:
        """Return (place, parts) of these steps that lie from `first` up to `end` in the batch."""
        low, high = bisect_left(self.at, first), bisect_left(self.at, end)
        rows = zip(*(as_list(column[low:high]) for column in self.seconds.values()), strict=True)
        return [
            (at, dict(zip(self.seconds, row, strict=True))) for at, row in zip(self.at[low:high], rows, strict=True)
        ]


def parts_of(batch: StepBatch) -> list[Parts]:
    """Return the parts of all the batch's steps, group by group."""
    return [_parts(pattern, batch.duration) for pattern in batch.phases]


def _parts(pattern: StepPattern, durations: Column) -> Parts:
    at: Sequence[int] = range(len(durations))
    if pattern.at is not None:
        at = pattern.at
        durations = [durations[place] for place in at]
    seconds: dict[str, Column] = {}
    named = minus(durations, durations)
    for name, column in zip(pattern.names, pattern.seconds, strict=True):
        seconds[name] = plus(seconds[name], column) if name in seconds else column
        named = plus(named, column)
    if exceeds(named, durations):  # parts of some writer exceed the step: scale them down
        durations, named = as_list(durations), as_list(named)
        for name, column in seconds.items():
            rows = zip(as_list(column), durations, named, strict=True)
            seconds[name] = [part * whole / sum_ if sum_ > whole else part for part, whole, sum_ in rows]
        named = list(map(min, named, durations))
    rest = minus(durations, named)
    seconds[OTHER] = plus(rest, seconds[OTHER]) if OTHER in seconds else rest
    clocks = dict(zip(reversed(pattern.names), reversed(pattern.clocks), strict=True))
    return Parts(seconds, clocks, at)


def rows_of(groups: list[Parts], first: int, end: int) -> list[dict[str, float]]:
    """Return the parts of the batch's steps from `first` up to `end`, step by step."""
    rows = [row for group in groups for row in group.rows(first, end)]
    if len(groups) > 1:
        rows.sort(key=lambda row: row[0])
    return [row for _, row in rows]


def columns_of(groups: list[Parts], index: Sequence[int]) -> dict[str, tuple[Sequence[int], Column]]:
    """Return the columns of every part: indices of steps and seconds, in the order of the steps."""
    if len(groups) == 1:
        return {name: (index, column) for name, column in groups[0].seconds.items()}
    rows_by_part: dict[str, list[tuple[int, float]]] = {}
    for group in groups:
        for name, column in group.seconds.items():
            rows_by_part.setdefault(name, []).extend(zip(group.at, column, strict=True))
    out: dict[str, tuple[Sequence[int], Column]] = {}
    for name, rows in rows_by_part.items():
        rows.sort()
        out[name] = ([index[place] for place, _ in rows], [seconds for _, seconds in rows])
    return out
