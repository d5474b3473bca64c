"""Tokens a second over the run."""

from __future__ import annotations

import math

from monitor import units as fmt
from monitor.model.pace import SINCE
from monitor.model.report import Curve, View
from monitor.tui.cursor import at
from monitor.tui.panels.base import Look
from monitor.tui.panels.curve import CurvePanel
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.metric import LOW
from monitor.tui.panels.ranks import of_rank
from monitor.tui.rows import Row, separated


def pointed_rate(curve: Curve, cursor: int) -> Row:
    """What it was where the time cursor is."""
    moment = at(curve, cursor)
    if moment is None:
        return [(f"step {cursor:,} ", "accent"), (fmt.UNKNOWN, "text")]
    return [(f"{moment.name} ", "accent"), (fmt.rate(moment.value, "tok/s"), "text")]


class Tokens(CurvePanel):
    number = 4

    def data(self, view: View, look: Look) -> object:
        return view.tokens_per_second, view.report.throughput.tokens_per_second, shown_rank(view.report), look.cursor

    def heading(self, view: View, look: Look) -> str:
        return of_rank("Tokens a second", view.report)

    def has_place(self, view: View, look: Look) -> bool:
        return bool(view.tokens_per_second.x) or not view.report.progress.steps_done

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        curve = view.tokens_per_second
        if not curve.x:
            return [[("  no tokens have been counted", "muted")]]
        last = next((value for value in reversed(curve.mean) if math.isfinite(value)), None)
        whole = view.report.throughput.tokens_per_second
        newest: Row = [("last ", "muted"), (fmt.rate(last, "tok/s"), "text")]
        parts: list[Row] = [
            newest if look.cursor is None else pointed_rate(curve, look.cursor),
            [(f"{SINCE} ", "muted"), (fmt.rate(whole, "tok/s"), "text")],
        ]
        row: Row = [(" ", "text"), *separated(parts, width - 1, ("  ", "text"))]
        head = [] if height + 1 < LOW else [row]
        return [*head, *self.curve("tokens", curve, width, height - len(head), look, view.step_seconds)]
