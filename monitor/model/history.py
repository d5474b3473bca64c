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


MAX_WAITING = 64  # rows that wait to be added together: a call costs the same for one as for all of them


@dataclass(slots=True)
class History:
    """Columns of numbers in buckets of `width` steps or seconds, aligned to multiples of the width.

    A bucket's edges never move, so a chart of it shifts only when a bucket is complete. With more than `most` buckets
    neighbors are joined in pairs. Few new rows wait for more, or until somebody asks.
    """

    most: int  # at least 2: what lies before and after zero never shares a bucket
    _width: int = 1
    _index: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    _columns: dict[str, FloatArray] = field(default_factory=dict)
    _waiting_places: bytearray = field(default_factory=bytearray)  # eight bytes a number, as in an array
    _waiting: dict[str, bytearray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def width(self) -> int:
        """Steps or seconds a bucket."""
        self._settle()
        return self._width

    @property
    def index(self) -> IntArray:
        """The numbers of the buckets, rising: place // width."""
        self._settle()
        return self._index

    def of(self, name: str) -> FloatArray:
        """Return a column; empty before anything was added."""
        self._settle()
        return self._columns.get(name, _EMPTY)

    def add(self, places: IntArray, columns: Mapping[str, FloatArray]) -> None:
        """Add numbers that lie at these steps or seconds, in any order. Each call has the same columns."""
        if len(places) + len(self._waiting_places) // places.itemsize >= MAX_WAITING:
            self._settle()
            self._add(places, columns)
            return
        self._waiting_places += places.tobytes()
        if not self._waiting:
            self._waiting = {name: bytearray() for name in columns}
        for name, column in columns.items():
            self._waiting[name] += column.tobytes()

    def _settle(self) -> None:
        """Add what waits."""
        if self._waiting_places:
            places = np.frombuffer(bytes(self._waiting_places), np.int64)
            columns = {
                name: _rows(np.frombuffer(bytes(content)), len(places)) for name, content in self._waiting.items()
            }
            self._waiting_places, self._waiting = bytearray(), {}
            self._add(places, columns)

    def _add(self, places: IntArray, columns: Mapping[str, FloatArray]) -> None:
        index, new = _joined(places // self._width, columns)
        while len(index) > self.most:
            self._width *= 2
            index, new = _joined(index // 2, new)
            self._index, self._columns = _joined(self._index // 2, self._columns)
        if len(self._index):
            new = {name: np.concatenate((self._columns[name], column)) for name, column in new.items()}
            in_order = index[0] > self._index[-1]
            index = np.concatenate((self._index, index))
            if not in_order:
                index, new = _joined(index, new)
        self._index, self._columns = index, new
        while len(self._index) > self.most:
            self._width *= 2
            self._index, self._columns = _joined(self._index // 2, self._columns)


_EMPTY: FloatArray = np.empty(0)


def _rows(numbers: FloatArray, rows: int) -> FloatArray:
    """Return numbers as a column: of single numbers, or of rows of several."""
    return numbers if len(numbers) == rows else numbers.reshape(rows, -1)


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
