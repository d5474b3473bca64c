"""The list from which a metric is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from monitor import units as fmt
from monitor.model.report import MetricRow
from monitor.tui.rows import column
from monitor.tui.screens.dialog import Dialog


class MetricScreen(Dialog[str]):
    heading = "Choose a metric; the number is its last value"

    def __init__(self, names: Sequence[str], rows: dict[str, MetricRow], current: str | None) -> None:
        super().__init__()
        self._names = list(names)
        self._rows = rows
        self._current = current

    def parts(self) -> list[Widget]:
        # Names come from the training: Content takes them as they are, a plain string would be read as markup.
        options = [Option(Content(self._label(name))) for name in self._names]
        choices = OptionList(*options)
        if self._current in self._names:
            choices.highlighted = self._names.index(self._current)
        return [choices]

    def _label(self, name: str) -> str:
        row = self._rows.get(name, MetricRow())
        bad = f"  × {row.nonfinite:,} not finite" if row.nonfinite else ""
        return f"{column(name, 36)} {column(fmt.number(row.last), 10, right=True)}{bad}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])
