"""Slabs of a journal's batches put together into long ones, so that folding pays its price seldom."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from monitor import columns
from monitor.slab import Pattern, Slab
from monitor.sources.on_demand import OnDemand
from monitor.sources.shapes import BESIDE
from trainhooks.events import Event

AT_HAND = 2  # of the newest batches the rows are kept: a reader wants the newest steps one by one


class Rows(OnDemand):
    """The rows of several batches. Few of them are ever asked for, so those of older ones are made again then."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: list[int] = []
        self._parts: list[tuple[Sequence[Any], Callable[[], Sequence[Any]] | None]] = []
        self._count = 0

    def add(self, rows: Sequence[Any], again: Callable[[], Sequence[Any]] | None) -> None:
        if not self._parts:
            self._first = rows[0]
        self._starts.append(self._count)
        self._parts.append((rows, again))
        self._count += len(rows)
        if len(self._parts) > AT_HAND:
            _, older = self._parts[-AT_HAND - 1]
            if older is not None:
                self._parts[-AT_HAND - 1] = ((), older)

    def __len__(self) -> int:
        return self._count

    def _some(self, first: int, end: int) -> list[Any]:
        out: list[Any] = []
        part = max(0, bisect_right(self._starts, first) - 1)
        while part < len(self._parts) and self._starts[part] < end:
            start, (rows, again) = self._starts[part], self._parts[part]
            rows = rows or (again() if again is not None else ())
            out += rows[max(0, first - start) : end - start]
            part += 1
        return out


def joined(events: Iterable[Event | Slab], arrays: bool = False) -> list[Event | Slab]:
    """Events in order, with neighbours among the slabs put together where they are alike.

    What may be told between two steps, and changes nothing of them, comes after them.

    Args:
        arrays: whether so many steps are to come that columns are worth being put into arrays.
    """
    out: list[Event | Slab] = []
    beside: list[Event] = []
    like: _Like | None = None
    for event in events:
        if isinstance(event, Slab):
            if like is None or not like.takes(event):
                out += [*_made(like), *beside]
                beside, like = [], _Like(event, arrays)
            like.add(event)
        elif like is not None and event.kind in BESIDE and event.producer == like.first.producer:
            beside.append(event)
        else:
            out += [*_made(like), *beside, event]
            beside, like = [], None
    return [*out, *_made(like), *beside]


class _Like:
    """Slabs in a row that make one: told by the same process, of one kind, with the same columns."""

    def __init__(self, slab: Slab, arrays: bool) -> None:
        self.first = slab.first
        self._arrays = arrays
        self._slabs: list[Slab] = []
        self._rows = Rows()
        self._kind = _kind(slab)
        self._orders = _orders(slab)

    def takes(self, slab: Slab) -> bool:
        return _kind(slab) == self._kind

    def add(self, slab: Slab) -> None:
        if self._slabs and _orders(slab) != self._orders:
            self._orders = None
        if self._arrays and self._orders is not None:
            _into_arrays(slab)
        self._rows.add(slab.rows, None if slab.rare else slab.again)
        self._slabs.append(slab)
        if len(self._slabs) > 1:
            slab.rows = self._slabs[0].rows = self._rows

    def made(self) -> Slab:
        if len(self._slabs) == 1:
            return self._slabs[0]
        slabs, first = self._slabs, self._slabs[0]
        if self._orders is None:
            for each in slabs:
                _into_lists(each)
        return replace(
            first,
            index=_joined_index([each.index for each in slabs]),
            t=columns.joined([each.t for each in slabs]),
            start=columns.joined([each.start for each in slabs]),
            duration=columns.joined([each.duration for each in slabs]),
            phases=_joined_patterns(slabs),
            tokens=None if first.tokens is None else columns.joined([each.tokens for each in slabs], int),
            samples=None if first.samples is None else columns.joined([each.samples for each in slabs], int),
            metrics={name: columns.joined([each.metrics[name] for each in slabs]) for name in first.metrics},
        )


def _made(like: _Like | None) -> list[Slab]:
    return [] if like is None else [like.made()]


def _kind(slab: Slab) -> tuple[Any, ...]:
    first = slab.first
    told = slab.tokens is None, slab.samples is None, *slab.metrics
    return first.producer, first.role, first.stage, first.status, first.thread, slab.rare, slab.as_step, told


def _orders(slab: Slab) -> tuple[Any, ...] | None:
    """What all its steps went through; None where they are not alike in that."""
    return _order(slab.phases[0]) if len(slab.phases) == 1 else None


def _order(pattern: Pattern) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return pattern.names, pattern.clocks


def _changed(slab: Slab, change: Callable[[Any], Any]) -> None:
    slab.t, slab.start, slab.duration = change(slab.t), change(slab.start), change(slab.duration)
    for pattern in slab.phases:
        pattern.seconds = [change(each) for each in pattern.seconds]


def _into_arrays(slab: Slab) -> None:
    _changed(slab, columns.as_array)
    slab.tokens = None if slab.tokens is None else columns.as_array(slab.tokens, int)
    slab.samples = None if slab.samples is None else columns.as_array(slab.samples, int)
    slab.metrics = {name: columns.as_array(each) for name, each in slab.metrics.items()}


def _into_lists(slab: Slab) -> None:
    _changed(slab, columns.as_list)


def _joined_patterns(slabs: list[Slab]) -> list[Pattern]:
    """The phases of all the slabs' steps, which come one slab after the other."""
    found: dict[Any, list[tuple[int, Slab, Pattern]]] = {}
    before = 0
    for slab in slabs:
        for pattern in slab.phases:
            found.setdefault(_order(pattern), []).append((before, slab, pattern))
        before += len(slab)
    out = []
    for (names, clocks), rows in found.items():
        seconds = [columns.joined(each) for each in zip(*(pattern.seconds for _, _, pattern in rows), strict=True)]
        at = [[first + place for place in pattern.at or range(len(slab))] for first, slab, pattern in rows]
        out.append(Pattern(names, clocks, seconds, list(chain.from_iterable(at)) if len(found) > 1 else None))
    return out


def _joined_index(parts: list[Sequence[int]]) -> Sequence[int]:
    following = all(type(each) is range for each in parts) and all(
        one[-1] + 1 == other[0] for one, other in pairwise(parts)
    )
    return range(parts[0][0], parts[-1][-1] + 1) if following else list(chain.from_iterable(parts))
