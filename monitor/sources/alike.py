"""A journal's steps as slabs straight from its bytes, where their lines differ in nothing but their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from monitor import columns
from monitor.columns import numpy
from monitor.slab import Pattern, Slab
from monitor.sources.decode import plain_steps
from monitor.sources.journal import lines_of
from monitor.sources.on_demand import OnDemand
from monitor.sources.shapes import BESIDE, STEP, Shape
from monitor.sources.template import Table, Template
from trainhooks.events import Event, Step

CUTS = 8  # places of a block where something stands between its steps; with more it is as quickly read line by line
TRIES = 3  # blocks in a row that do not fit; after so many one is tried now and then
SELDOM = 16  # blocks
SAMPLES = 32  # steps of a block that show which numbers differ


class Rows(OnDemand):
    """The steps of a table's lines."""

    def __init__(self, block: bytes, begins: Any, ends: Any) -> None:
        super().__init__()
        self._block, self._begins, self._ends = block, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    def _some(self, first: int, end: int) -> list[Step]:
        lines = zip(self._begins[first:end].tolist(), self._ends[first:end].tolist(), strict=True)
        return plain_steps(b"\n".join([self._block[begin:end] for begin, end in lines]))


@dataclass(slots=True)
class Found:
    """The events of a block: steps that are alike, and each other one with the count of steps before it."""

    producer: str
    steps: Callable[[int, int], Slab]  # some of them
    seq: Any
    others: list[tuple[int, Event]]

    def numbers(self) -> range | None:
        """The events' numbers, if they follow each other."""
        places = [place for place, _ in self.others]
        first = int(self.seq[0]) - places.count(0)
        order = numpy().arange(len(self.seq))
        steps = self.seq == first + order + numpy().searchsorted(places, order, "right")
        whole = steps.all() and all(
            event.seq == first + place + before and event.producer == self.producer
            for before, (place, event) in enumerate(self.others)
        )
        return range(first, first + len(self.seq) + len(places)) if whole else None

    def slabs(self) -> list[Event | Slab]:
        """The events in order; what does not touch steps comes after them, as in `shapes.slabs`."""
        out: list[Event | Slab] = []
        beside: list[Event] = []
        begin, end = 0, len(self.seq)
        for place, event in self.others:
            if event.kind in BESIDE:
                (beside if place > begin else out).append(event)
                continue
            out += [self.steps(begin, place)] if place > begin else []
            out += [*beside, event]
            beside, begin = [], place
        return [*out, *([self.steps(begin, end)] if end > begin else []), *beside]


class Alike:
    """The template of a journal's steps, looked for anew where its lines do not fit."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._template: Template | None = None
        self._failed = 0  # blocks in a row

    def read(self, block: bytes, end: int, decode: Callable[[bytes], Any]) -> Found | None:
        """The events of a block's whole lines, which end there; None where they are to be read line by line."""
        decoder = self._shape.decoder()
        if decoder is None:
            return None
        found = None
        if self._failed <= TRIES or self._failed % SELDOM == 0:
            with suppress(ValueError, TypeError):  # a line that is a step, and not plainly written
                if self._template is None:
                    template = _template(block, end)
                    decoder.decode(template.line)
                    self._template = template
                found = _found(block, end, self._template, decode)
        self._failed = 0 if found is not None else self._failed + 1
        if found is None:
            self._template = None
        return found


def _template(block: bytes, end: int) -> Template:
    """What some steps of a block have in common: its last one, and such as are like it."""
    lines = []
    for part in range(SAMPLES, 0, -1):
        begin = block.rfind(b"\n" + STEP, 0, end * part // SAMPLES - 1) + 1
        lines.append(block[begin : block.find(b"\n", begin) + 1])
    return Template(lines)


def _found(block: bytes, end: int, template: Template, decode: Callable[[bytes], Any]) -> Found | None:
    table = template.read(block, end)
    if table is None:
        return None
    others = [(place, decode(line)) for place, line in _between(block, end, table)]
    if not all(isinstance(event, Event) for _, event in others):
        return None
    if sum(event.kind not in BESIDE for _, event in others) > CUTS:
        return None

    def steps(begin: int, end: int) -> Slab:
        return _slab(block, template, table, slice(begin, end))

    return Found(template.step["producer"], steps, table.numbers["seq", 0], others)


def _between(block: bytes, end: int, table: Table) -> Iterator[tuple[int, bytes]]:
    """The other lines, each with the count of lines of the table before it."""
    ends = numpy().concatenate([[-1], table.ends]) + 1
    begins = numpy().concatenate([table.begins, [end]])
    for place in numpy().flatnonzero(begins != ends).tolist():
        for line in lines_of(block[ends[place] : begins[place]]):
            yield place, line


def _slab(block: bytes, template: Template, table: Table, some: slice) -> Slab:
    table = table.only(some)
    numbers = dict(table.numbers)
    for key, value in template.same.items():
        if key[0] not in ("times", "epoch"):  # of which there is no column
            numbers[key] = columns.constant(float(value) if key[0] == "metrics" else value, len(table.ends))
    names = tuple([name for name, _ in template.phases])
    clocks = tuple([clock for _, clock in template.phases])
    return Slab(
        Rows(block, table.begins, table.ends),
        columns.in_a_row(numbers["index", 0]),
        numbers["t", 0],
        numbers["start", 0],
        numbers["duration", 0],
        [Pattern(names, clocks, [numbers["seconds", place] for place in range(len(names))])],
        numbers.get(("tokens", 0)),
        numbers.get(("samples", 0)),
        {name: numbers["metrics", name] for name in template.metrics},
    )
