"""Slabs of a journal's batches put together into long ones, so that folding pays its price seldom."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from monitor.slab import Pattern, Slab
from monitor.sources.shapes import BESIDE
from trainhooks.events import Event

AT_HAND = 2  # of the newest batches the rows are kept: a reader wants the newest steps one by one


class Rows(Sequence[Any]):
    """The rows of several batches. Few of them are ever asked for, so those of older ones are made again then."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[tuple[Sequence[Any], Callable[[], Sequence[Any]] | None]] = []
        self._count = 0
        self._first: Any = None

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

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        if at == 0:
            return self._first
        if isinstance(at, slice):
            return self._some(*at.indices(self._count)[:2])
        return self._some(range(self._count)[at], range(self._count)[at] + 1)[0]

    def _some(self, first: int, end: int) -> list[Any]:
        out: list[Any] = []
        part = max(0, bisect_right(self._starts, first) - 1)
        while part < len(self._parts) and self._starts[part] < end:
            start, (rows, again) = self._starts[part], self._parts[part]
            rows = rows or (again() if again is not None else ())
            out += rows[max(0, first - start) : end - start]
            part += 1
        return out


def joined(events: Iterable[Event | Slab]) -> list[Event | Slab]:
    """Events in order, with neighbours among the slabs put together where they are alike.

    What may be told between two steps, and changes nothing of them, comes after them.
    """
    out: list[Event | Slab] = []
    beside: list[Event | Slab] = []
    last: Slab | None = None
    for event in events:
        if isinstance(event, Slab):
            if last is not None and _alike(last, event):
                _absorb(last, event)
                continue
            out += beside
            beside, last = [], event
            out.append(event)
        elif last is not None and event.kind in BESIDE and event.producer == last.producer:
            beside.append(event)
        else:
            out += beside
            beside, last = [], None
            out.append(event)
    return out + beside


def _alike(slab: Slab, more: Slab) -> bool:
    """Whether two slabs make one: told by the same process, of one kind, with the same columns."""
    return (
        _kind(slab) == _kind(more)
        and slab.as_step is more.as_step
        and (slab.tokens is None, slab.samples is None) == (more.tokens is None, more.samples is None)
        and list(slab.metrics) == list(more.metrics)
    )


def _kind(slab: Slab) -> tuple[Any, ...]:
    first = slab.first
    return first.producer, first.role, first.stage, first.status, first.thread, slab.rare


def _absorb(slab: Slab, more: Slab) -> None:
    if not isinstance(slab.rows, Rows):
        rows = Rows()
        rows.add(slab.rows, None if slab.rare else slab.again)
        slab.rows = rows
    slab.rows.add(more.rows, None if more.rare else more.again)
    _absorb_patterns(slab, more)
    slab.index = _after(slab.index, more.index)
    slab.t += more.t
    slab.start += more.start
    slab.duration += more.duration
    if slab.tokens is not None and more.tokens is not None:
        slab.tokens += more.tokens
    if slab.samples is not None and more.samples is not None:
        slab.samples += more.samples
    for name, column in slab.metrics.items():
        _extend(column, more.metrics[name])


def _absorb_patterns(slab: Slab, more: Slab) -> None:
    """The phases of `more`, whose steps come after those of `slab`."""
    before = len(slab)
    if len(slab.phases) == len(more.phases) == 1 and _order(slab.phases[0]) == _order(more.phases[0]):
        for column, added in zip(slab.phases[0].seconds, more.phases[0].seconds, strict=True):
            _extend(column, added)
        return
    found = {_order(pattern): pattern for pattern in slab.phases}
    for pattern in slab.phases:
        if pattern.at is None:
            pattern.at = list(range(before))
    for pattern in more.phases:
        places = [before + at for at in (range(len(more)) if pattern.at is None else pattern.at)]
        known = found.get(_order(pattern))
        if known is None or known.at is None:
            slab.phases.append(Pattern(pattern.names, pattern.clocks, pattern.seconds, places))
            continue
        known.at += places
        for column, added in zip(known.seconds, pattern.seconds, strict=True):
            _extend(column, added)


def _order(pattern: Pattern) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return pattern.names, pattern.clocks


def _extend(column: Sequence[Any], more: Sequence[Any]) -> None:
    assert isinstance(column, list)  # the columns of a batch are its own
    column += more


def _after(index: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    if isinstance(index, range) and isinstance(more, range) and index.stop == more.start:
        return range(index.start, more.stop)
    return [*index, *more]
