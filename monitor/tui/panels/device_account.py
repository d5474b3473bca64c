"""The account of the GPU's time in the steps, as rows of a screen: each part with what is certain and what may be."""

from __future__ import annotations

from monitor.model import account_in_words
from monitor.model.report import Device
from monitor.tui.rows import Row, column, cut, fit, text_width, wrap

_TITLE = " The GPU in the steps"
_NUMBER = 11
_STATE = 6
_LEAST_NAME, _MOST_NAME = 16, 48
_TONES = {"busy": "text", "copy": "text", "idle": "muted"}


def account_rows(device: Device, width: int) -> list[Row]:
    """A title, the table, and how it is to be read; nothing where no steps were timed."""
    head, *parts = account_in_words.rows(device) or [[]]
    if not parts:
        return []
    longest = max(text_width(_TITLE) - 2, *(text_width(part[0]) for part in parts))
    names = min(_MOST_NAME, longest, width - _STATE - 2 * _NUMBER - 6)
    if names < _LEAST_NAME:
        return []
    labels = f"{column(_TITLE, names + 3)}  {column(head[1], _STATE)}"
    numbers = "".join(column(each, _NUMBER, right=True) for each in head[2:])
    rows: list[Row] = [[], [(labels, "text bold"), (numbers, "muted")]]
    for name, state, *cells in parts:
        tone = _TONES.get(state, "text")
        told = "".join(column(cell, _NUMBER, right=True) for cell in cells)
        rows.append([(f"   {column(fit(name, names), names)}  {column(state, _STATE)}", tone), (told, "text")])
    for line in [*account_in_words.notes(device), *account_in_words.outside(device)]:
        rows += wrap([(f"   {line}", "muted")], width - 1, 3)
    return [cut(row, width) for row in rows]
