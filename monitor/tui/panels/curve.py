"""A panel with a curve beside its figures: the figures are always the newest, the curve moves every other second."""

from __future__ import annotations

import time

from textual.timer import Timer

from monitor.model.report import Curve
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.plot import line_chart
from monitor.tui.rows import Row

# A curve is the dearest thing on the board to draw, and one more step moves it by less than a column.
REST = 2.0  # seconds


class CurvePanel(Panel):
    """Its curve is drawn at once where anything else than new steps changed it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._curve: list[Row] = []
        self._curve_basis: tuple[object, ...] | None = None
        self._curve_at = 0.0
        self._due: Timer | None = None

    def curve(self, name: str, curve: Curve, width: int, height: int, look: Look, steps: Curve) -> list[Row]:
        """The chart of the curve `name` over all of the run's `steps`, or what it was a moment ago."""
        basis = (name, width, height, look.cursor)
        live = self.is_attached and not look.replay and not look.paused
        if live and basis == self._curve_basis and time.monotonic() - self._curve_at < REST:
            if self._due is None:  # the last steps of a run are drawn, too
                self._due = self.set_timer(REST, lambda: self.draw_again(force=True))
            return self._curve
        if self._due is not None:
            self._due.stop()
            self._due = None
        self._curve_basis, self._curve_at = basis, time.monotonic()
        self._curve = line_chart(curve, width, height, pointed=look.cursor, beside=steps)
        return self._curve
