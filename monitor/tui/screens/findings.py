"""Why is it slow: findings with their evidence and advice, each with its page, and the log of all alerts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.diagnosis.explain import CODES, Page, page
from monitor.diagnosis.gain import gain, without_it
from monitor.model.report import Finding, Suggestion, View
from monitor.model.what_if import is_past
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.alerts import entries
from monitor.tui.panels.base import Look
from monitor.tui.panels.header import SEVERITY
from monitor.tui.rows import Row, cut, printable, row_width, spread, wrap
from monitor.tui.screens.page import ListBody, PageScreen, glued

WORDS = {"info": "info", "warning": "warning", "critical": "CRITICAL"}  # severity is said, not only coloured
KINDS_OF_ALERT = "slow steps, GPUs held back, and what went wrong are told here with their time"
SEVERITY_WIDTH = max(map(len, WORDS.values()))
NO_FINDING = "none"  # the code of a verdict that only says where the time goes
SHORT = 40  # characters that need not be broken on any screen
NO_MEMORY = "none"  # what a suggestion costs
_MARKS = re.compile(r"[`*]")

known_page = lru_cache(maxsize=16)(page)  # drawn again with every change of the list


def at_the_end(finding: Finding, width: int) -> Row:
    """`at most 1.9x faster  warning`, as much of it as half the width holds."""
    tone = SEVERITY.get(finding.severity, "accent")
    word = "verdict" if finding.code == NO_FINDING else WORDS.get(finding.severity, finding.severity)
    most = gain(finding.recoverable)
    column = f" {word:>{SEVERITY_WIDTH}} "  # below each other in a list
    row: Row = [(f" {most} faster ", tone), (column, f"{tone} bold")]
    if most and row_width(row) <= width // 2:
        return row
    row = [(f" {most.replace('at most ', '≤')} ·" if most else "", tone), (f" {word} ", f"{tone} bold")]
    return row if row_width(row) <= width // 2 else []


def told(view: View) -> list[Finding]:
    """The findings. A verdict that is none of them, as where the time goes, comes before them."""
    findings = view.report.findings
    return findings if any(each.code == view.verdict.code for each in findings) else [view.verdict, *findings]


def no_alert(view: View) -> str:
    return "none so far" if view.report.outcome.state == "running" else "none"


def finding_rows(finding: Finding, width: int, chosen: bool, without: str | None = None) -> list[Row]:
    tone = SEVERITY.get(finding.severity, "accent")
    edge: Row = [("▶ " if chosen else "▌ ", f"{tone} bold")]
    right = at_the_end(finding, width)
    first, *more = wrap([*edge, (printable(finding.title[:400]), f"{tone} bold")], width - row_width(right) - 1)
    rest = " ".join("".join(text for text, _ in row).strip() for row in more)  # below the gain there is more room
    rows = [spread(first, right, width), *(wrap([("  ", tone), (rest, f"{tone} bold")], width) if rest else [])]
    for line in finding.evidence[:8]:
        rows += wrap([("   ", "text"), (printable(line[:600]), "text")], width, 3)
    if finding.advice:
        rows += wrap([("   → ", "accent"), (printable(finding.advice[:800]), "muted")], width, 5)
    if without is not None:
        rows += wrap([("   ", "text"), (printable(without), "muted")], width, 3)
    return [*rows, []]


def page_rows(shown: Page, width: int) -> list[Row]:
    """The page of a code; its marks of Markdown are left out."""
    code = "" if shown.code == NO_FINDING else f" {shown.code} "
    rows: list[Row] = wrap([(code, "accent bold"), (f" {shown.line}", "text bold")], width)
    for heading, body in shown.sections:
        rows += [[], [(f" {heading}", "text bold")]]
        for block in re.split(r"\n(?=- |\n)", body):
            text = _MARKS.sub("", " ".join(block.split()))
            if text:
                rows += wrap([(" ", "text"), (text, "text")], width, 3 if text.startswith("- ") else 1, 200)
    return rows


def below(code: str, width: int, room: int) -> list[Row]:
    """Below the list, as many whole sections of the page as `room` rows hold, and how to see the others."""
    about = "this verdict" if code == NO_FINDING else f"the chosen finding: {code}"
    heading: Row = [(f"─ About {about}", "muted")]
    text = page_rows(known_page(code), width - 2)[1:]
    if len(text) + 2 <= room:
        return [[], heading, *text]
    ends = [at for at, row in enumerate(text) if not row and 0 < at <= room - 2]
    if not ends:
        return []
    rest = spread(heading, [(" Enter", "accent"), (" shows all of it ", "muted")], width)
    return [[], rest, *text[: ends[-1]]]


def try_rows(suggestion: Suggestion, first: bool, chosen: bool, width: int) -> list[Row]:
    """What may help, without a number of this run that says it does."""
    heading: list[Row] = [[("─ To try: what may help; no finding by itself", "muted")]] if first else []
    row: Row = [("▶ " if chosen else "  ", "accent bold"), (printable(suggestion.text[:400]), "text bold")]
    row += [(f"  {printable(suggestion.because[:400])}", "muted")] if suggestion.because else []
    if suggestion.memory not in ("", NO_MEMORY):
        words = f"memory: {printable(suggestion.memory[:200])}"
        row.append((f"  {glued(words) if len(words) <= SHORT else words}", "muted"))
    return [*heading, *wrap(row, width, 4)]


class Findings(ListBody):
    screen_name = "findings"
    title = "Why is it slow"
    has_verdict = True
    about = (
        "What costs time in this run, the gravest first. Each finding has its evidence in this run's own numbers and"
        " one line of advice; `at most` is what the run could gain if the cause were gone entirely.",
        "Enter opens the page of a finding: what it means, how it is detected and from which limits on, what to do,"
        " what that costs. Below the findings stand all alerts, the newest first, with the time since the run began.",
    )

    def data(self, view: View, look: Look) -> object:
        report = view.report
        events = report.alerts, report.slow_steps, report.dropped, view.notes, view.details.held_back
        return report.findings, view.verdict, report.to_try, events, self.selected, self.opened

    def aside(self, view: View, look: Look) -> Row:
        if self.opened:
            return [("Enter or Esc", "accent"), (" back to the list", "muted")]
        findings, alerts = len(view.report.findings), len(entries(view, look))
        return [(f"{fmt.plural(findings, 'finding', 'findings')}, {fmt.plural(alerts, 'alert', 'alerts')}", "muted")]

    def keys(self, view: View, look: Look) -> list[object]:
        findings = [each.code for each in told(view)]
        to_try = [("try", index) for index in range(len(view.report.to_try))]
        return [*findings, *to_try, *(("alert", index) for index in range(len(entries(view, look)) or 1))]

    def entry(self, key: object, view: View, look: Look, width: int, chosen: bool) -> list[Row]:
        if not isinstance(key, tuple):
            finding = next(each for each in told(view) if each.code == key)
            past = without_it(view.report, finding) if is_past(view.report, finding) else None
            return finding_rows(finding, width - 1, chosen, past)
        if key[0] == "try":
            return try_rows(view.report.to_try[key[1]], key[1] == 0, chosen, width - 2)
        alerts = entries(view, look)
        heading: list[Row] = [[("─ Alerts, the newest first", "muted")]] if key[1] == 0 else []
        heading = [[], *heading] if heading and view.report.to_try else heading  # below a finding is one already
        edge: Row = [("▶ " if chosen else "  ", "accent bold")]
        if not alerts:
            return [*heading, [*edge, (no_alert(view), "muted")]]
        return [*heading, *wrap([*edge, *alerts[key[1]]], width - 2, 4)]

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        """The list, and where all of it leaves room, the page of the chosen finding below it."""
        rows = super().body(view, look, width, height)
        keys = self.keys(view, look)
        key = keys[self.choice(keys)]
        if self.opened or not isinstance(key, str) or key not in CODES:
            return rows
        return [*rows, *below(key, width, height - len(rows))]

    def opened_rows(self, key: object, view: View, look: Look, width: int) -> list[Row]:
        if isinstance(key, tuple) and key[0] == "try":
            return try_rows(view.report.to_try[key[1]], True, False, width - 2)
        if isinstance(key, tuple):
            alerts = entries(view, look)
            alert: Row = alerts[key[1]] if key[1] < len(alerts) else [(f"{no_alert(view)}: {KINDS_OF_ALERT}", "muted")]
            return wrap([(" ", "text"), *alert], width - 2, 3, 40)
        finding = next(each for each in told(view) if each.code == key)
        rows = finding_rows(finding, width - 1, False, without_it(view.report, finding))
        if isinstance(key, str) and key in CODES:
            rows += page_rows(known_page(key), width - 2)
        return [cut(row, width) for row in rows]


class FindingsScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("findings")]

    def __init__(self) -> None:
        super().__init__(Findings())
