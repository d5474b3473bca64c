"""Tables drawn with lines: a name and a value a row, or a head and a row a step. Pure."""

from __future__ import annotations

import re

from monitor.console.figures import NONFINITE, NUMBER, number, seconds
from monitor.console.place import figure, settle, tells
from monitor.console.reading import Reading, name

MAX_CELLS = 40
MAX_ROWS = 400

_ROW = re.compile(r"^\s{0,40}[|│┃║](?P<cells>.{1,2000})[|│┃║]\s*$")
_RULE = re.compile(r"^\s{0,40}[-+=|─━┄┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇┻┳╭╮╰╯╞╡╪╔╗╚╝╠╣═:]{5,}\s*$")
_NUMBER = re.compile(rf"(?:{NUMBER}|{NONFINITE})\s?%?")


class Table:
    """Reads rows one by one."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._pairs: Reading | None = None
        self._rows = 0

    def take(self, text: str) -> tuple[bool, Reading | None]:
        """Whether this line is part of a table, and what has become known by it."""
        if _RULE.match(text):
            return True, None
        row = _ROW.match(text)
        if row is None:
            return False, self.end()
        cells = [cell.strip() for cell in re.split(r"[|│┃║]", row["cells"])][:MAX_CELLS]
        self._rows += 1
        if len(cells) == 2 and self._rows <= MAX_ROWS and (not self._head or len(self._head) == 2):
            return True, self._pair(*cells)
        numeric = [_value(cell) is not None for cell in cells]
        if not any(numeric):
            done = self.end()
            self._head = cells
            return True, done
        if len(cells) != len(self._head):
            return True, None
        reading = Reading("metrics")
        for called, cell in zip(self._head, cells, strict=True):
            _put(reading, called, cell)
        if not all(numeric) and not _on_training(reading):
            return True, None  # a model's layers, by name, with their sizes
        return True, reading

    def _pair(self, called: str, cell: str) -> Reading | None:
        if _value(called) is not None and _value(cell) is not None and self._head:
            reading = Reading("metrics")  # a head of two columns, and rows of numbers
            for each, value in zip(self._head, (called, cell), strict=True):
                _put(reading, each, value)
            return reading
        if _value(cell) is None:
            self._head = [called, cell]
            return None
        if self._pairs is None:
            self._pairs = Reading("metrics")
        _put(self._pairs, called, cell)
        return None

    @property
    def open(self) -> bool:
        return self._pairs is not None or bool(self._head)

    def end(self) -> Reading | None:
        """The table is over; what its rows of names and values said together."""
        pairs, self._pairs, self._head, self._rows = self._pairs, None, [], 0
        if pairs is not None:
            settle(pairs)
        return pairs if pairs is not None and _on_training(pairs) else None  # else a configuration that is printed


def _on_training(reading: Reading) -> bool:
    """Whether these figures are of a training's course, and not of what it was made from."""
    placed = reading.step is not None or reading.epoch is not None or reading.elapsed is not None
    return placed or any(map(tells, reading.metrics))


def _value(cell: str) -> object:
    found = _NUMBER.fullmatch(cell)
    return number(cell.rstrip(" %")) if found else None


def _put(reading: Reading, called: str, cell: str) -> None:
    counted = re.fullmatch(r"(\d{1,12})\s?/\s?(\d{1,12})", cell)
    if counted is not None and name(called) in ("step", "iter", "iteration", "epoch"):
        figure(reading, called, int(counted.group(1)))
        if name(called) == "epoch":
            reading.epochs = int(counted.group(2))
        else:
            reading.total = int(counted.group(2))
        return
    value = number(cell.rstrip(" %")) if _NUMBER.fullmatch(cell) else None
    if value is not None:
        figure(reading, called, value)
    elif (told := seconds(cell)) is not None:
        figure(reading, called, told, seconds=told)
