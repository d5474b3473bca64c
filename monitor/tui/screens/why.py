"""Why is it slow: every finding, with its evidence, its advice and what fixing it can gain at most."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from monitor import units as fmt
from monitor.model.report import Finding, View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.panels.header import SEVERITY
from monitor.tui.rows import Row, printable, wrap
from monitor.tui.screens.dialog import Dialog


def finding_rows(finding: Finding, width: int) -> list[Row]:
    tone = SEVERITY.get(finding.severity, "accent")
    title: Row = [("▌ ", tone), (printable(finding.title[:400]), f"{tone} bold")]
    rows = wrap(title, width)
    if finding.lost_fraction:
        rows.append([("   ", "text"), (f"at most {fmt.share(finding.lost_fraction)} to gain", tone)])
    for line in finding.evidence[:8]:
        rows += wrap([("   ", "text"), (printable(line[:600]), "text")], width, 3)
    if finding.advice:
        rows += wrap([("   → ", "accent"), (printable(finding.advice[:800]), "muted")], width, 5)
    rows += [[("   trainmon explain ", "faint"), (printable(finding.code[:60]), "faint")], []]
    return rows


class Findings(ScrollPanel):
    def data(self, view: View, look: Look) -> object:
        return view.report.findings, view.verdict

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        return self.body(view, look, width, height)

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        findings = view.report.findings or [view.verdict]
        return [row for finding in findings for row in finding_rows(finding, width - 2)]


class WhyScreen(Dialog[None]):
    heading = "Why is it slow"
    wide = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w,q", "close", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
    ]

    def parts(self) -> list[Widget]:
        return [Findings("findings")]

    def action_scroll(self, rows: int) -> None:
        self.query_one(Findings).scroll_rows(rows)
