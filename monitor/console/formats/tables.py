"""Read tables that are drawn with lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from monitor.console.field_mapping import is_about_training, name, resolve_ambiguous_times, set_value
from monitor.console.formats import Format, register
from monitor.console.printed_values import NONFINITE, NUMBER, number, seconds
from monitor.console.reading import Reading

MIN_TABLE_COLUMNS, MAX_TABLE_COLUMNS = 2, 40
MAX_ROWS = 400  # names and values of one table; no program has more

_ROW = re.compile(r"^\s{0,40}[|│┃║](?P<cells>.{1,2000})[|│┃║]\s*$")
_RULE = re.compile(r"^\s{0,40}[-+=|─━┄┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇┻┳╭╮╰╯╞╡╪╔╗╚╝╠╣═:]{5,}\s*$")
_NUMBER = re.compile(rf"(?:{NUMBER}|{NONFINITE})\s?%?")
_NAMED = re.compile(rf"[A-Za-z][\w /()-]{{0,40}}[:=]\s{{0,12}}(?:{NUMBER}|{NONFINITE})")
COUNTED = re.compile(r"(\d{1,12})\s?/\s?(\d{1,12})")


@register
class DrawnTables(Format):
    """A table drawn with lines: a name and a value per row, or a header and a row per step."""

    order: ClassVar[int] = (
        10  # the first: no other format draws lines at both ends, and a cell may resemble any of them
    )
    marks: ClassVar[tuple[str, ...]] = ("|", "│", "┃", "║", "┏", "┡", "├", "+")

    def __init__(self) -> None:
        self._header: list[str] = []
        self._pairs: Reading | None = None
        self._rows = 0

    @property
    def open(self) -> bool:
        return self._pairs is not None or bool(self._header)

    def ends_at(self, text: str) -> bool:
        return _RULE.match(text) is None and _ROW.match(text) is None

    def read(self, text: str) -> list[Reading] | None:
        if _RULE.match(text):
            return []
        row = _ROW.match(text)
        if row is None:
            return None
        cells = [cell.strip() for cell in re.split(r"[|│┃║]", row["cells"])][:MAX_TABLE_COLUMNS]
        if sum(_NAMED.match(cell) is not None for cell in cells) >= MIN_TABLE_COLUMNS:
            return None  # named values with lines between them
        self._rows = self._rows + 1 if self.open else 1
        if len(cells) == 2 and self._rows <= MAX_ROWS and (not self._header or len(self._header) == 2):
            return self._pair(*cells)
        numeric = [_number(cell) is not None for cell in cells]
        if not any(numeric):
            ended = self.close()
            self._header = cells
            return ended
        if len(cells) != len(self._header):
            return []
        reading = _row_reading(self._header, cells)
        if not all(numeric) and not _is_about_training(reading):
            return []  # a model's layers, by name, with their sizes
        return [reading]

    def _pair(self, label: str, cell: str) -> list[Reading]:
        if _number(cell) is None:
            self._header = [label, cell]
            return []
        if _number(label) is not None and self._header:  # a header of two columns, and rows of numbers
            return [_row_reading(self._header, (label, cell))]
        if self._pairs is None:
            self._pairs = Reading("metrics")
        _set_cell(self._pairs, label, cell)
        return []

    def close(self) -> list[Reading]:
        pairs, self._pairs, self._header, self._rows = self._pairs, None, [], 0
        if pairs is not None:
            resolve_ambiguous_times(pairs)
        return [pairs] if pairs is not None and _is_about_training(pairs) else []  # else a printed configuration


def _is_about_training(reading: Reading) -> bool:
    """Return whether these values report on a training, not on its configuration."""
    placed = reading.step is not None or reading.epoch is not None or reading.elapsed is not None
    return placed or any(map(is_about_training, reading.metrics))


def _number(cell: str) -> object:
    return number(cell.rstrip(" %")) if _NUMBER.fullmatch(cell) else None


def _row_reading(header: Sequence[str], cells: Sequence[str]) -> Reading:
    reading = Reading("metrics")
    for label, cell in zip(header, cells, strict=True):
        _set_cell(reading, label, cell)
    return reading


def _set_cell(reading: Reading, label: str, cell: str) -> None:
    counted = COUNTED.fullmatch(cell)
    if counted is not None and name(label) in ("step", "iter", "iteration", "epoch"):
        set_value(reading, label, int(counted[1]))
        if name(label) == "epoch":
            reading.epochs = int(counted[2])
        else:
            reading.total = int(counted[2])
    elif _NUMBER.fullmatch(cell) and (value := number(cell.rstrip(" %"))) is not None:
        set_value(reading, label, value)
    elif (span := seconds(cell)) is not None:
        set_value(reading, label, span, span)
