"""Read the scores of a detector's evaluation: one row of numbers under a header that is the label of its bar.

Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|####| 4/4 [00:02<00:00, 2.0it/s]
  all        128        929       0.64       0.53       0.60       0.44
"""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import name, set_value
from monitor.console.formats import Format, register
from monitor.console.printed_values import NUMBER, number
from monitor.console.reading import Reading

MAX_SCORE_COLUMNS = 16

_HEADER = re.compile(r"\bClass[ \t]{1,20}Images\b(?P<rest>[\w().@ \t-]{1,300}mAP[\w().@ \t-]{0,200})")
_ROW = re.compile(rf"^\s{{0,40}}all(?P<cells>(?:\s{{1,20}}{NUMBER}){{2,{MAX_SCORE_COLUMNS}}})\s*$")
_NAMES = {"p": "precision", "r": "recall"}
_COUNTS = ("instances", "labels")


@register
class ScoreRows(Format):
    """The row of all classes; its header is a bar's label, and stays with the bar."""

    order: ClassVar[int] = 35  # before bars, whose labels have the header

    def __init__(self) -> None:
        self._columns: list[str] = []

    def read(self, text: str) -> list[Reading] | None:
        if "mAP" in text and (header := _HEADER.search(text)) is not None:
            self._columns = _columns(header["rest"])
            return None
        row = _ROW.match(text) if self._columns else None
        if row is None:
            return None
        cells = row["cells"].split()[1:]  # without the images
        if len(cells) != len(self._columns):
            return None
        scores = Reading("metrics")
        for column, cell in zip(self._columns, cells, strict=True):
            value = number(cell)
            if column not in _COUNTS and value is not None:
                set_value(scores, f"val_{column}", value)
        return [scores]


def _columns(text: str) -> list[str]:
    """Return the names of the columns behind the images: `Mask(P` begins a group, the box's own names stay bare."""
    names, group = [], ""
    for cell in text.split()[:MAX_SCORE_COLUMNS]:
        opened, bracket, bare = cell.rpartition("(")
        if bracket:
            group = "" if opened.lower() == "box" else f"{name(opened)}_"
        plain = name(bare.rstrip("):"))
        names.append(group + _NAMES.get(plain, plain))
    return names
