"""Steps whose lines differ in nothing but their numbers, read as columns at once.

What such lines have in common is looked for once, in one of them, and then compared byte for byte. What is left are
numbers, whose digits are added up for all lines together. The columns hold what a decoder makes of each line, to the
last bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from monitor import columns
from monitor.sources.digits import Text, floats, naturals
from trainhooks.events import MAX_LINE

Array = Any
Key = tuple[str, int | str]  # of a number: its field, and which phase or metric

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)')
_LIMIT = 1e12  # of all times

# The fields of a plain step that are numbers: whole ones, and what times must be above (a phase may take none).
_WHOLE = ("index", "seq", "tokens", "samples", "times")
_CONSTANT = ("times", "tokens", "samples", "metrics", "epoch")  # that may be the same in all steps
_NEEDED = {"producer", "index", "seq", "t", "start", "duration"}
_LEAST = {"t": -_LIMIT, "start": -_LIMIT, "duration": 0.0, "seconds": 0.0}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a number stands in a line."""

    before: bytes  # the text from the end of the number before it
    pointed: bool  # whether it is told with a point
    field: str
    of: int | str  # which phase or metric

    def read(self, text: Text, at: Array) -> tuple[Array, Array, Array]:
        """The number in each line, where it ends, and where it is not one that a plain step may have."""
        if self.field in _WHOLE:
            return naturals(text, at)
        found, end, wrong = floats(text, at, self.pointed)
        least = _LEAST.get(self.field)
        if least is None:
            return found, end, wrong
        below = found <= least if self.field != "seconds" else found < least
        return found, end, wrong | below | (found >= _LIMIT)


@dataclass(slots=True)
class Table:
    """Those lines of a block that are as a template says, as columns."""

    begins: Array  # where each line does, and where its last byte stands
    ends: Array
    numbers: dict[Key, Array]

    def only(self, some: Array | slice) -> Table:
        numbers = {key: column[some] for key, column in self.numbers.items()}
        return Table(self.begins[some], self.ends[some], numbers)


class Template:
    """What the lines of some steps have in common, and where their numbers stand."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        """
        Args:
            lines: of plain steps, with their ends. What is the same in the first and all that are like it, is text.

        Raises:
            ValueError: a number in the first belongs to no field of such a step.
        """
        self.line = lines[0]
        told, numbers = _split(self.line)
        others = [found for text, found in map(_split, lines[1:]) if text == told]
        numbered = b"".join(text + b"%d" % place for place, text in enumerate(told[:-1])) + told[-1]
        self.step = msgspec.json.decode(numbered)
        named = dict(_named(self.step))
        if (
            named.keys() != set(range(len(numbers)))
            or not self.step.keys() >= _NEEDED
            or len(self.line) > MAX_LINE // 2
        ):
            raise ValueError("not a plain step's line")
        self.same: dict[Key, int | float] = {}  # numbers that are text
        self.places: list[Place] = []
        before = b""
        for place, (text, number) in enumerate(zip(told, numbers, strict=False)):
            before += text
            if named[place][0] in _CONSTANT and all(other[place] == number for other in others):
                self.same[named[place]] = msgspec.json.decode(number)
                before += number
            else:
                self.places.append(Place(before, b"." in number, *named[place]))
                before = b""
        self.after = before + told[-1]
        self.spare = max(len(self.after), *(len(place.before) for place in self.places))
        self.phases = [(name, clock) for name, _, clock, _ in self.step.get("phases", ())]
        self.metrics = [str(name) for field, name in named.values() if field == "metrics"]

    def read(self, data: bytes, end: int) -> Table | None:
        """Those of some whole lines, which end there, that are as this one; None where there are none."""
        text = Text(data, end, self.spare)
        ends = text.line_ends()
        table = Table(columns.before(ends + 1, 0), ends, {})
        at = table.begins
        for place in self.places:
            table, at = _only(table, at, text.same(at, place.before))
            if not len(at):
                return None
            found, at, wrong = place.read(text, at + len(place.before))
            table.numbers[place.field, place.of] = found
            if wrong.any():
                table, at = _only(table, at, ~wrong)
        table, at = _only(table, at, text.same(at, self.after))
        return table if len(at) else None


def _only(table: Table, at: Array, some: Array | None) -> tuple[Table, Array]:
    return (table, at) if some is None else (table.only(some), at[some])


def _split(line: bytes) -> tuple[list[bytes], list[bytes]]:
    """A line's numbers, and the text around them."""
    found = [match for match in _TOKEN.finditer(line) if match.group(1)]
    begins, ends = [match.start() for match in found], [match.end() for match in found]
    texts = [line[end:begin] for end, begin in zip([0, *ends], [*begins, len(line)], strict=True)]
    return texts, [match.group() for match in found]


def _named(step: dict[str, Any]) -> Iterator[tuple[int, Key]]:
    """The numbers of a step, and what each is."""
    for name in (*_WHOLE, *_LEAST, "epoch"):
        if type(step.get(name)) is int:
            yield step[name], (name, 0)
    for at, (_, seconds, _, times) in enumerate(step.get("phases", ())):
        yield seconds, ("seconds", at)
        yield times, ("times", at)
    for name, value in (step.get("metrics") or {}).items():
        if value is not None:
            yield value, ("metrics", name)
