"""Bounded history: numbers along steps or seconds, in buckets that double in width as they grow in number. Pure.

The one place that decides how detail is given up with age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from monitor.arrays import FloatArray, IntArray, np

# How the values of two buckets become those of one, by the name of a column. Without a value a bucket has nan.
JOINS: dict[str, Any] = {
    "count": np.add,
    "total": np.add,
    "low": np.fmin,
    "high": np.fmax,
    "begin": np.minimum,  # seconds
    "end": np.maximum,
    "first": np.minimum,  # numbers of steps
    "last": np.maximum,
    "tokens": np.maximum,  # counted since the begin
    "samples": np.maximum,
    "uncounted": np.maximum,
}

T = TypeVar("T")


@dataclass(slots=True)
class History:
    """Columns of numbers in buckets of `width` steps or seconds, aligned to multiples of the width.

    A bucket's edges never move, so a chart of it shifts only when a bucket is complete. With more than `most` buckets
    neighbors are joined in pairs.
    """

    most: int  # at least 2: what lies before and after zero never shares a bucket
    width: int = 1
    index: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # bucket numbers, rising: place // width
    columns: dict[str, FloatArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    def add(self, places: IntArray, columns: Mapping[str, FloatArray]) -> None:
        """Add numbers that lie at these steps or seconds, in any order. Each call has the same columns."""
        if not len(places):
            return
        index, new = _joined(places // self.width, columns)
        while len(index) > self.most:
            self.width *= 2
            index, new = _joined(index // 2, new)
            self.index, self.columns = _joined(self.index // 2, self.columns)
        if len(self.index):
            new = {name: np.concatenate((self.columns[name], column)) for name, column in new.items()}
            in_order = index[0] > self.index[-1]
            index = np.concatenate((self.index, index))
            if not in_order:
                index, new = _joined(index, new)
        self.index, self.columns = index, new
        while len(self.index) > self.most:
            self.width *= 2
            self.index, self.columns = _joined(self.index // 2, self.columns)

    def of(self, name: str) -> FloatArray:
        """Return a column; empty before anything was added."""
        return self.columns.get(name, _EMPTY)


_EMPTY: FloatArray = np.empty(0)


def _joined(index: IntArray, columns: Mapping[str, FloatArray]) -> tuple[IntArray, dict[str, FloatArray]]:
    """Return the columns with what lies in the same bucket joined, in the order of the buckets."""
    steps = index[1:] - index[:-1]
    if (steps > 0).all():
        return index, dict(columns)
    if (steps < 0).any():
        order = index.argsort(kind="stable")
        index, columns = index[order], {name: column[order] for name, column in columns.items()}
        steps = index[1:] - index[:-1]
    begins = np.concatenate(([0], np.flatnonzero(steps) + 1))
    with np.errstate(over="ignore"):
        return index[begins], {name: JOINS[name].reduceat(column, begins) for name, column in columns.items()}


def in_pairs(rows: Sequence[T], join: Callable[[T, T], T]) -> list[T]:
    """Return the rows with neighbors joined: half as many. For a history of other things than numbers."""
    joined = [join(a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)]
    return joined + list(rows[2 * len(joined) :])
