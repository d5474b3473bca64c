"""Read columns of values under a header of words, with spaces or commas between them."""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import name, set_value, words
from monitor.console.formats import Format, register
from monitor.console.formats.progress_bars import complete_bar, read_bar
from monitor.console.formats.tables import COUNTED, MAX_TABLE_COLUMNS, MIN_TABLE_COLUMNS
from monitor.console.printed_values import CLOCK, NONFINITE, NUMBER, number, seconds
from monitor.console.reading import Reading

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
    return cell in _EMPTY or any(pattern.fullmatch(cell) for pattern in (_VALUE, COUNTED, _TIME))


def _set_column(into: Reading, label: str, cell: str) -> None:
    counted = COUNTED.fullmatch(cell)
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
