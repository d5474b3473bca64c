"""The phases of steps as parts that add up to each step, in columns. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from monitor import columns
from monitor.slab import Pattern, Slab

OTHER = "other"  # inside a step, in no phase


@dataclass(slots=True)
class Parts:
    """The parts of those steps of a slab that went through the same phases; `other` is one of them."""

    seconds: dict[str, columns.Column]  # in order of occurrence
    clocks: dict[str, str]
    at: Sequence[int]  # the steps' places in the slab, rising

    def rows(self, first: int, end: int) -> list[tuple[int, dict[str, float]]]:
        """Of the slab's steps from `first` up to `end` these ones: place and parts."""
        low, high = bisect_left(self.at, first), bisect_left(self.at, end)
        rows = zip(*(columns.as_list(column[low:high]) for column in self.seconds.values()), strict=True)
        return [
            (at, dict(zip(self.seconds, row, strict=True))) for at, row in zip(self.at[low:high], rows, strict=True)
        ]


def parts_of(slab: Slab) -> list[Parts]:
    """The parts of all the slab's steps, group by group."""
    return [_parts(pattern, slab.duration) for pattern in slab.phases]


def _parts(pattern: Pattern, durations: columns.Column) -> Parts:
    at: Sequence[int] = range(len(durations))
    if pattern.at is not None:
        at = pattern.at
        durations = [durations[place] for place in at]
    seconds: dict[str, columns.Column] = {}
    named = columns.minus(durations, durations)
    for name, column in zip(pattern.names, pattern.seconds, strict=True):
        seconds[name] = columns.plus(seconds[name], column) if name in seconds else column
        named = columns.plus(named, column)
    if columns.exceeds(named, durations):  # a writer whose parts exceed the whole: scaled, so that shares stay shares
        durations, named = columns.as_list(durations), columns.as_list(named)
        for name, column in seconds.items():
            rows = zip(columns.as_list(column), durations, named, strict=True)
            seconds[name] = [part * whole / sum_ if sum_ > whole else part for part, whole, sum_ in rows]
        named = list(map(min, named, durations))
    rest = columns.minus(durations, named)
    seconds[OTHER] = columns.plus(rest, seconds[OTHER]) if OTHER in seconds else rest
    clocks = dict(zip(reversed(pattern.names), reversed(pattern.clocks), strict=True))
    return Parts(seconds, clocks, at)


def rows_of(groups: list[Parts], first: int, end: int) -> list[dict[str, float]]:
    """The parts of the slab's steps from `first` up to `end`, step by step."""
    rows = [row for group in groups for row in group.rows(first, end)]
    if len(groups) > 1:
        rows.sort(key=lambda row: row[0])
    return [row for _, row in rows]


def columns_of(groups: list[Parts], index: Sequence[int]) -> dict[str, tuple[Sequence[int], columns.Column]]:
    """Each part's column: step numbers and seconds, in the steps' order."""
    if len(groups) == 1:
        return {name: (index, column) for name, column in groups[0].seconds.items()}
    found: dict[str, list[tuple[int, float]]] = {}
    for group in groups:
        for name, column in group.seconds.items():
            found.setdefault(name, []).extend(zip(group.at, column, strict=True))
    out: dict[str, tuple[Sequence[int], columns.Column]] = {}
    for name, rows in found.items():
        rows.sort()
        out[name] = ([index[place] for place, _ in rows], [seconds for _, seconds in rows])
    return out
