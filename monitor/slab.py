"""Steps in a row as columns, so that a long run is added up by the interpreter's own loops. Pure.

A slab is what the fold takes steps in: a step that comes alone is a slab of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeVar, cast

from monitor import columns
from trainhooks.events import Step

T = TypeVar("T")


@dataclass(slots=True)
class Pattern:
    """Those steps of a slab that went through the same phases in the same order."""

    names: tuple[str, ...]
    clocks: tuple[str, ...]
    seconds: list[columns.Column]  # a column for each name
    at: list[int] | None = None  # their places in the slab; None: all of it


@dataclass(slots=True)
class Slab:
    """Steps of one process in a row that are alike: in role, stage, thread, status, and in whether they were timed."""

    rows: Sequence[Any]  # steps, or what has a step's attributes: for what few programs tell
    index: Sequence[int]  # a range where they follow each other, so that nobody has to look again
    t: columns.Column  # the columns are lists or arrays, all of these four alike
    start: columns.Column
    duration: columns.Column
    phases: list[Pattern]
    tokens: columns.Column | None = None  # None: not counted in any
    samples: columns.Column | None = None
    metrics: dict[str, columns.Column] = field(default_factory=dict)  # None where a step lacks it
    rare: bool = False  # some step tells lengths, padding or calls of the model
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
        """Some of the steps, as events."""
        return map(self.as_step, self.rows[first:end])

    def singles(self) -> Iterator[Slab]:
        """The same, each step for itself: for where the order between columns matters."""
        return (single(step) for step in self.steps(0, len(self)))


def single(step: Step) -> Slab:
    """One step, whatever it tells."""
    names = tuple([row[0] for row in step.phases])
    pattern = Pattern(names, tuple([row[2] for row in step.phases]), [[row[1]] for row in step.phases])
    return Slab(
        [step],
        [step.index],
        [step.t],
        [step.start],
        [step.duration],
        [pattern],
        None if step.tokens is None else [step.tokens],
        None if step.samples is None else [step.samples],
        {name: [value] for name, value in step.metrics.items()},
        step.padded_tokens is not None or step.lengths is not None or step.forwards is not None,
    )


def known(values: Sequence[T | None], *beside: Sequence[Any]) -> tuple[Sequence[T], list[Sequence[Any]]]:
    """The values without those that are None, and what lies beside them in other columns."""
    if columns.is_array(values) or None not in values:
        return cast("Sequence[T]", values), list(beside)
    there = [value is not None for value in values]
    return cast("list[T]", list(compress(values, there))), [
        list(compress(columns.as_list(each), there)) for each in beside
    ]


def append_all(kept: list[T], count: int, rows: Callable[[int, int], Iterator[T]], most: int, cut: int) -> None:
    """As if each of `count` rows were appended, and the oldest `cut` went whenever there were more than `most`.

    Args:
        rows: gives those from a place up to another one; asked for what stays only.
    """
    length = len(kept) + count
    if length > most:
        length -= -((most - length) // cut) * cut
    new = min(count, length)
    kept.extend(rows(count - new, count))
    del kept[: len(kept) - length]
