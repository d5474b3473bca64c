"""Tables without lines, or with commas: a head of words, and under it a row of figures a step or an epoch. Pure.

A head is one only if a column of it counts: without that, rows of numbers may be anything.
"""

from __future__ import annotations

import re

from monitor.console.figures import CLOCK, NONFINITE, NUMBER, number, seconds
from monitor.console.place import figure
from monitor.console.reading import Reading, name, words

MIN_COLUMNS, MAX_COLUMNS = 2, 40
COUNTS_AMONG = 2  # the column that counts is one of the first two

_NAMED = re.compile(r"(?:#|[A-Za-z_][\w.()/#-]{0,40})(?: [A-Za-z_(#][\w.()/#-]{0,40}){0,3}")
_GAP = re.compile(r"\t+|\s{2,}")
_COMMA = re.compile(r"\s?,\s?")
_EPOCH = words("e ep epoch epochs")
_STEP = words("step steps iter iteration iterations it round")
_FIGURE = re.compile(rf"(?:{NUMBER}|{NONFINITE})(?:[%GMKk]|ms|s|min)?")
_COUNTED = re.compile(r"(\d{1,9})/(\d{1,9})")
_TIME = re.compile(CLOCK)
_EMPTY = frozenset(("-", "–", "None", "N/A", "n/a", "No log"))


class Columns:
    """Keeps the newest head, and reads the rows under it."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._commas = False  # between its cells

    def begin(self, text: str) -> bool:
        """Whether a line is a head."""
        commas = "," in text
        cells = _COMMA.split(text.strip()) if commas else _GAP.split(text.strip())
        if not MIN_COLUMNS <= len(cells) <= MAX_COLUMNS or not all(_NAMED.fullmatch(cell) for cell in cells):
            return False
        called = [_called(cell) for cell in cells]
        if not any(each in _EPOCH or each in _STEP for each in called[:COUNTS_AMONG]):
            return False
        self._head, self._commas = called, commas
        return True

    def row(self, text: str, into: Reading) -> bool:
        """Take a row of figures; False where this is none."""
        if not self._head or not text.strip()[:1].isdigit():
            return False
        cells = self._cells(text.strip())
        if len(cells) != len(self._head) or not all(_told(cell.strip()) for cell in cells):
            return False
        for called, cell in zip(self._head, cells, strict=True):
            _put(into, called, cell.strip())
        return True

    def _cells(self, text: str) -> list[str]:
        if self._commas:
            return _COMMA.split(text)
        return text.split("\t") if "\t" in text else text.split()


def _called(cell: str) -> str:
    return "step" if cell.strip() == "#" else name(cell)


def _told(cell: str) -> bool:
    return cell in _EMPTY or any(each.fullmatch(cell) for each in (_FIGURE, _COUNTED, _TIME))


def _put(into: Reading, called: str, cell: str) -> None:
    counted = _COUNTED.fullmatch(cell)
    if called in _EPOCH:
        told = number(counted[1] if counted is not None else cell)
        into.epoch = float(told) if isinstance(told, (int, float)) else None
        into.epochs = int(counted[2]) if counted is not None else None
    elif counted is not None:
        into.step = int(counted[1]) if called in _STEP else into.step
        into.total = int(counted[2]) if called in _STEP else into.total
        into.key = "step" if called in _STEP else into.key
    elif _TIME.fullmatch(cell):
        figure(into, called, seconds(cell) or 0.0, seconds=seconds(cell))
    elif cell.endswith(("s", "min")) and (told_time := seconds(cell)) is not None:
        figure(into, called, told_time, seconds=told_time)
    elif _FIGURE.fullmatch(cell) and (value := number(cell.rstrip("%GMKk"))) is not None:
        if called in _STEP and isinstance(value, int):
            into.step, into.key = value, "step"
        elif called not in _STEP:
            figure(into, called, value)
