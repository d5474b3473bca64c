"""Read tables: drawn with lines, or columns of values under a header of words, with spaces or commas between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from monitor.console.field_mapping import is_about_training, name, resolve_ambiguous_times, set_value, words
from monitor.console.formats import Format, register
from monitor.console.formats.progress_bars import complete_bar, read_bar
from monitor.console.reading import CLOCK, NONFINITE, NUMBER, Reading, number, seconds

MIN_TABLE_COLUMNS, MAX_TABLE_COLUMNS = 2, 40
MAX_ROWS = 400  # names and values of one table; no program has more

_ROW = re.compile(r"^\s{0,40}[|│┃║](?P<cells>.{1,2000})[|│┃║]\s*$")
_RULE = re.compile(r"^\s{0,40}[-+=|─━┄┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇┻┳╭╮╰╯╞╡╪╔╗╚╝╠╣═:]{5,}\s*$")
_NUMBER = re.compile(rf"(?:{NUMBER}|{NONFINITE})\s?%?")
_NAMED = re.compile(rf"[A-Za-z][\w /()-]{{0,40}}[:=]\s{{0,12}}(?:{NUMBER}|{NONFINITE})")
_COUNTED = re.compile(r"(\d{1,12})\s?/\s?(\d{1,12})")


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
    counted = _COUNTED.fullmatch(cell)
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


# Columns without lines

MAX_COUNTER_COLUMN = 2  # the column that counts is one of the first two; without it, rows of numbers may be anything

_LABEL = re.compile(r"(?:#|[A-Za-z_][\w.()/#-]{0,40})(?: [A-Za-z_(#][\w.()/#-]{0,40}){0,3}")
_GAP = re.compile(r"\t+|\s{2,}")
_COMMA = re.compile(r"\s?,\s?")
_EPOCH = words("e ep epoch epochs")
_STEP = words("step steps iter iteration iterations it round")
_VALUE = re.compile(rf"(?:{NUMBER}|{NONFINITE})(?:[%GMKk]|ms|s|min)?")
_TIME = re.compile(CLOCK)
_EMPTY = frozenset(("-", "–", "None", "N/A", "n/a", "No log"))


@register
class Columns(Format):
    """Rows of values under the newest header. A row may precede a bar and be drawn again with every frame."""

    order: ClassVar[int] = 30  # before bars, which would read a row before them as their label
    without_numbers: ClassVar[bool] = True

    def __init__(self) -> None:
        self._header: list[str] = []
        self._commas = False  # between the cells

    def read(self, text: str) -> list[Reading] | None:
        if self._read_header(text):
            return []
        if not self._header or not text.lstrip()[:1].isdigit():
            return None
        row = Reading("metrics")
        if self._read_row(text, row):
            row.family = "step" if row.step is not None else "epoch"
            return [row]
        drawn = read_bar(text)
        beside = Reading("bar")
        if drawn is None or not self._read_row(drawn.before.rstrip(" :"), beside):
            return None
        bar = drawn.bar
        bar.label, bar.key, bar.per_epoch = "training", "bar training", True
        bar.metrics.update(beside.metrics)
        return complete_bar(bar, "", drawn.after, beside)

    def _read_header(self, text: str) -> bool:
        commas = "," in text
        cells = (_COMMA if commas else _GAP).split(text.strip())
        if not MIN_TABLE_COLUMNS <= len(cells) <= MAX_TABLE_COLUMNS or not all(
            _LABEL.fullmatch(cell) for cell in cells
        ):
            return False
        labels = ["step" if cell.strip() == "#" else name(cell) for cell in cells]
        if not any(label in _EPOCH or label in _STEP for label in labels[:MAX_COUNTER_COLUMN]):
            return False
        self._header, self._commas = labels, commas
        return True

    def _read_row(self, text: str, into: Reading) -> bool:
        text = text.strip()
        split = _COMMA.split(text) if self._commas else text.split("\t") if "\t" in text else text.split()
        cells = [cell.strip() for cell in split]
        if len(cells) != len(self._header) or not all(map(_is_cell, cells)):
            return False
        for label, cell in zip(self._header, cells, strict=True):
            _set_column(into, label, cell)
        return True


def _is_cell(cell: str) -> bool:
    return cell in _EMPTY or any(pattern.fullmatch(cell) for pattern in (_VALUE, _COUNTED, _TIME))


def _set_column(into: Reading, label: str, cell: str) -> None:
    counted = _COUNTED.fullmatch(cell)
    if label in _EPOCH:
        epoch = number(counted[1] if counted is not None else cell)
        into.epoch = float(epoch) if isinstance(epoch, (int, float)) else None
        into.epochs = int(counted[2]) if counted is not None else None
    elif counted is not None:
        if label in _STEP:
            into.step, into.total, into.key = int(counted[1]), int(counted[2]), "step"
    elif (_TIME.fullmatch(cell) or cell.endswith(("s", "min"))) and (span := seconds(cell)) is not None:
        set_value(into, label, span, span)
    elif _VALUE.fullmatch(cell) and (value := number(cell.rstrip("%GMKk"))) is not None:
        if label not in _STEP:
            set_value(into, label, value)
        elif isinstance(value, int):
            into.step, into.key = value, "step"
