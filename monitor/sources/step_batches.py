"""Join decoded steps into batches of columns, and neighboring batches into longer ones.

Folding costs a fixed price a batch, so a long history is folded in few, long ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise, takewhile
from operator import attrgetter
from typing import Any, overload

import msgspec

from monitor import step_columns
from monitor.sources.step_schema import RARE, Phases, Row
from monitor.step_columns import StepBatch, StepPattern
from trainhooks.protocol.events import Event

AT_HAND = 2  # newest batches whose rows are kept: a reader needs the newest steps one by one
BESIDE = ("pulse", "frames")  # kinds independent of steps: they may be folded after them


class Rows(Sequence[Any]):
    """The rows of several batches. Few are ever read, so those of older batches are decoded again on demand."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[tuple[Sequence[Any], Callable[[], Sequence[Any]] | None]] = []
        self._count = 0
        self._first: Any = None  # kept for the fields that all rows have in common

    def add(self, rows: Sequence[Any], again: Callable[[], Sequence[Any]] | None) -> None:
        """Append rows.

        Args:
            again: decodes them once more; None where they have to be kept.
        """
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
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return self._some(first, end)
        if at == 0:
            return self._first
        index = range(len(self))[at]
        return self._some(index, index + 1)[0]

    def _some(self, first: int, end: int) -> list[Any]:
        out: list[Any] = []
        part = max(0, bisect_right(self._starts, first) - 1)
        while part < len(self._parts) and self._starts[part] < end:
            start, (rows, again) = self._starts[part], self._parts[part]
            rows = rows or (again() if again is not None else ())
            out += rows[max(0, first - start) : end - start]
            part += 1
        return out


def step_batches(events: Sequence[Any]) -> list[Event | StepBatch]:
    """Return the events in order, with consecutive plain steps joined into batches.

    Events between two such steps that do not touch steps come after them.
    """
    return _one_batch(events) or _several_batches(events)


def _one_batch(events: Sequence[Any]) -> list[Event | StepBatch] | None:
    """Return the same where the types show that all steps make one batch, the most frequent case; else None."""
    types = set(map(type, events))
    row_type = next((known for known in types if issubclass(known, Row)), Row)
    if not row_type.ALIKE:
        return None
    rows = events if len(types) == 1 else [event for event in events if type(event) is row_type]
    others = [] if len(types) == 1 else [event for event in events if type(event) is not row_type]
    producer = rows[0].producer
    if any(isinstance(event, Row) or event.kind not in BESIDE or event.producer != producer for event in others):
        return None
    batch = _batch(rows)
    batch.again = getattr(events, "again", None)
    before = len(list(takewhile(lambda event: type(event) is not row_type, events)))
    return [*others[:before], batch, *others[before:]]


def _several_batches(events: Sequence[Any]) -> list[Event | StepBatch]:
    again = getattr(events, "again", None)
    plain = sum(isinstance(event, Row) for event in events) if again is not None else 0
    out: list[Event | StepBatch] = []
    rows: list[Row] = []
    beside: list[Event] = []
    kind: Any = None

    def put() -> None:
        if rows:
            batch = _batch(rows)
            if len(batch) == plain:
                batch.again = again
            out.append(batch)
        out.extend(beside)

    for event in events:
        if isinstance(event, Row):
            row_kind = (type(event), event.producer, event.role, event.stage)
            if row_kind != kind and (rows or beside):
                put()
                rows, beside = [], []
            kind = row_kind
            rows.append(event)
        elif event.kind in BESIDE and rows and event.producer == rows[0].producer:
            beside.append(event)
        else:
            put()
            rows, beside, kind = [], [], None
            out.append(event)
    put()
    return out


def _batch(rows: Sequence[Row]) -> StepBatch:
    """Return rows of one producer, role and stage as columns."""
    tokens, samples = [row.tokens for row in rows], [row.samples for row in rows]
    return StepBatch(
        rows,
        step_columns.in_a_row([row.index for row in rows]),
        [row.t for row in rows],
        [row.start for row in rows],
        [row.duration for row in rows],
        _patterns([row.phases for row in rows]),
        tokens if tokens.count(None) < len(rows) else None,
        samples if samples.count(None) < len(rows) else None,
        _metrics([row.metrics for row in rows]),
        rows[0].RARE and any(getattr(row, name) is not None for row in rows for name in RARE),
        Row.step,
    )


def _metrics(metrics: list[Any]) -> dict[str, Sequence[Any]]:
    """Return the metrics as columns, without those that no step has."""
    some = next((values for values in metrics if values is not None), None)
    if some is None:
        return {}
    if None in metrics:
        empty = type(some)()
        metrics = [empty if values is None else values for values in metrics]
    columns = [list(map(attrgetter(field), metrics)) for field in some.__struct_fields__]
    named = zip(some.NAMES, columns, strict=True)
    return {name: column for name, column in named if column.count(None) < len(column)}


def _patterns(steps: list[Any]) -> list[StepPattern]:
    """Return the phases of steps as columns. Usually all steps have the same ones."""
    seconds: list[Sequence[float]]
    if isinstance(steps[0], Phases):
        first = tuple(steps[0])
        columns = zip(*map(msgspec.structs.astuple, steps), strict=True)
        seconds = [[phase.seconds for phase in column] for column in columns]
        return [StepPattern(tuple([phase.name for phase in first]), tuple([phase.clock for phase in first]), seconds)]
    flat = list(chain.from_iterable(steps))
    names, clocks = [phase.name for phase in flat], [phase.clock for phase in flat]
    width = len(steps[0])
    if len(flat) == width * len(steps) and _repeats(names, width) and _repeats(clocks, width):
        all_seconds = [phase.seconds for phase in flat]
        seconds = [all_seconds[column::width] for column in range(width)]
        return [StepPattern(tuple(names[:width]), tuple(clocks[:width]), seconds)]
    groups: dict[Any, list[int]] = {}
    for at, phases in enumerate(steps):
        groups.setdefault(tuple([(phase.name, phase.clock) for phase in phases]), []).append(at)
    out = []
    for order, positions in groups.items():
        seconds = [[steps[at][column].seconds for at in positions] for column in range(len(order))]
        out.append(StepPattern(tuple([name for name, _ in order]), tuple([c for _, c in order]), seconds, positions))
    return out


def _repeats(texts: list[str], width: int) -> bool:
    return texts == texts[:width] * (len(texts) // width) if width else not texts


def merged(events: Iterable[Event | StepBatch], arrays: bool = False) -> list[Event | StepBatch]:
    """Return the events in order, with neighboring batches joined where they are alike.

    Args:
        arrays: put the columns into arrays, which pays off only for many steps.
    """
    out: list[Event | StepBatch] = []
    beside: list[Event] = []
    merging: _Merge | None = None
    for event in events:
        if isinstance(event, StepBatch):
            if merging is None or not merging.takes(event):
                out += [*_finished(merging), *beside]
                beside, merging = [], _Merge(event, arrays)
            merging.add(event)
        elif merging is not None and event.kind in BESIDE and event.producer == merging.producer:
            beside.append(event)
        else:
            out += [*_finished(merging), *beside, event]
            beside, merging = [], None
    return [*out, *_finished(merging), *beside]


class _Merge:
    """Consecutive batches to join: of the same process and kind, with the same columns."""

    def __init__(self, batch: StepBatch, arrays: bool) -> None:
        self.producer = batch.producer
        self._arrays = arrays
        self._batches: list[StepBatch] = []
        self._rows = Rows()
        self._kind = _kind(batch)
        self._order = _order(batch)

    def takes(self, batch: StepBatch) -> bool:
        return _kind(batch) == self._kind

    def add(self, batch: StepBatch) -> None:
        if self._batches and _order(batch) != self._order:
            self._order = None
        if self._arrays and self._order is not None:
            _convert(batch, step_columns.as_array)
        self._rows.add(batch.rows, None if batch.rare else batch.again)
        self._batches.append(batch)
        if len(self._batches) > 1:
            batch.rows = self._batches[0].rows = self._rows

    def finish(self) -> StepBatch:
        batches, first = self._batches, self._batches[0]
        if len(batches) == 1:
            return first
        if self._order is None:
            for batch in batches:
                _convert(batch, lambda column, of=float: step_columns.as_list(column))
        joined = step_columns.joined
        return replace(
            first,
            index=_joined_index([batch.index for batch in batches]),
            t=joined([batch.t for batch in batches]),
            start=joined([batch.start for batch in batches]),
            duration=joined([batch.duration for batch in batches]),
            phases=_joined_patterns(batches),
            tokens=None if first.tokens is None else joined([batch.tokens for batch in batches], int),
            samples=None if first.samples is None else joined([batch.samples for batch in batches], int),
            metrics={name: joined([batch.metrics[name] for batch in batches]) for name in first.metrics},
        )


def _finished(merging: _Merge | None) -> list[StepBatch]:
    return [] if merging is None else [merging.finish()]


def _kind(batch: StepBatch) -> tuple[Any, ...]:
    first = batch.first
    columns = batch.tokens is None, batch.samples is None, *batch.metrics
    return first.producer, first.role, first.stage, first.status, first.thread, batch.rare, batch.as_step, columns


def _order(batch: StepBatch) -> tuple[Any, ...] | None:
    """Return the phases that all steps of the batch have, in order; None where steps differ."""
    return (batch.phases[0].names, batch.phases[0].clocks) if len(batch.phases) == 1 else None


def _convert(batch: StepBatch, column: Callable[..., Any]) -> None:
    """Apply a function to every column; it takes the column, and its type where that is not float."""
    batch.t, batch.start, batch.duration = column(batch.t), column(batch.start), column(batch.duration)
    for pattern in batch.phases:
        pattern.seconds = [column(seconds) for seconds in pattern.seconds]
    batch.tokens = None if batch.tokens is None else column(batch.tokens, int)
    batch.samples = None if batch.samples is None else column(batch.samples, int)
    batch.metrics = {name: column(values) for name, values in batch.metrics.items()}


def _joined_patterns(batches: list[StepBatch]) -> list[StepPattern]:
    """Return the phases of the steps of all batches, batch by batch."""
    groups: dict[Any, list[tuple[int, StepBatch, StepPattern]]] = {}
    before = 0
    for batch in batches:
        for pattern in batch.phases:
            groups.setdefault((pattern.names, pattern.clocks), []).append((before, batch, pattern))
        before += len(batch)
    out = []
    for (names, clocks), rows in groups.items():
        columns = zip(*(pattern.seconds for _, _, pattern in rows), strict=True)
        seconds = [step_columns.joined(column) for column in columns]
        at = [[first + place for place in pattern.at or range(len(batch))] for first, batch, pattern in rows]
        out.append(StepPattern(names, clocks, seconds, list(chain.from_iterable(at)) if len(groups) > 1 else None))
    return out


def _joined_index(parts: list[Sequence[int]]) -> Sequence[int]:
    following = all(type(part) is range for part in parts) and all(
        earlier[-1] + 1 == later[0] for earlier, later in pairwise(parts)
    )
    return range(parts[0][0], parts[-1][-1] + 1) if following else list(chain.from_iterable(parts))
