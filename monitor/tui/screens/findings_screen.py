"""The findings screen: findings with evidence, advice and page, suggestions, and the log of all alerts."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from monitor import units
from monitor.diagnosis.answer import answer
from monitor.diagnosis.explain import CODES, Page, gain_line, gain_text, read_page
from monitor.keymap import OPEN, RESTORE
from monitor.model.comparison.what_if import is_past
from monitor.model.report import Finding, Suggestion
from monitor.model.view import View
from monitor.tui.drawing.answer_rows import SEVERITY
from monitor.tui.drawing.rows import Row, cut, printable, row_width, spread, wrap
from monitor.tui.panels.alerts_panel import entries
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.page import ListBody, screen, with_no_break_spaces

SEVERITY_WORDS = {"info": "info", "warning": "warning", "critical": "CRITICAL"}  # shown as text, not only as color
KINDS_OF_ALERT = "slow steps, throttled GPUs and errors are listed here"
SEVERITY_WIDTH = max(map(len, SEVERITY_WORDS.values()))
NO_FINDING = "none"  # the code of a verdict that only says where the time goes
SHORT_CHARACTERS = 40  # characters that fit into a row of any screen
NO_MEMORY = "none"  # cost of a suggestion
_MARKS = re.compile(r"[`*]")

known_page = lru_cache(maxsize=16)(read_page)  # cached: drawn again with every change of the list


def at_the_end(finding: Finding, width: int) -> Row:
    """Return `about 1.9x faster  warning`, shortened to half the width; empty if nothing fits."""
    tone = SEVERITY.get(finding.severity, "accent")
    word = "verdict" if finding.code == NO_FINDING else SEVERITY_WORDS.get(finding.severity, finding.severity)
    most = gain_text(finding.gain)
    column = f" {word:>{SEVERITY_WIDTH}} "  # aligned in a list
    row: Row = [(f" {most} faster ", tone), (column, f"{tone} bold")]
    if most and row_width(row) <= width // 2:
        return row
    row = [(f" {most.replace('about ', '~')} ·" if most else "", tone), (f" {word} ", f"{tone} bold")]
    return row if row_width(row) <= width // 2 else []


def listed_findings(view: View) -> list[Finding]:
    """Return the findings, after the verdict if that is not one of them: with what to do, as everywhere."""
    findings = view.report.findings
    if any(finding.code == view.verdict.code for finding in findings):
        return findings
    return [replace(view.verdict, advice=next(iter(answer(view.report, view.verdict).to_do), "")), *findings]


def no_alert(view: View) -> str:
    return "none so far" if view.report.outcome.state == "running" else "none"


def finding_rows(finding: Finding, width: int, chosen: bool, without: str | None = None) -> list[Row]:
    tone = SEVERITY.get(finding.severity, "accent")
    edge: Row = [("▶ " if chosen else "▌ ", f"{tone} bold")]
    right = at_the_end(finding, width)
    first, *more = wrap([*edge, (printable(finding.title[:400]), f"{tone} bold")], width - row_width(right) - 1)
    rest = " ".join("".join(text for text, _ in row).strip() for row in more)  # rows below the gain are wider
    rows = [spread(first, right, width), *(wrap([("  ", tone), (rest, f"{tone} bold")], width) if rest else [])]
    for line in finding.evidence[:8]:
        rows += wrap([("   ", "text"), (printable(line[:600]), "text")], width, 3)
    if finding.advice:
        rows += wrap([("   → ", "accent"), (printable(finding.advice[:800]), "muted")], width, 5)
    if without is not None:
        rows += wrap([("   ", "text"), (printable(without), "muted")], width, 3)
    return [*rows, []]


def page_rows(shown: Page, width: int) -> list[Row]:
    """Return the page of a finding, without its Markdown marks."""
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
    """Return as many whole sections of the page as fit into `room` rows, and the key that opens the rest."""
    about = "this verdict" if code == NO_FINDING else f"{code}"
    heading: Row = [(f"─ About {about}", "muted")]
    text = page_rows(known_page(code), width - 2)[1:]
    if len(text) + 2 <= room:
        return [[], heading, *text]
    ends = [at for at, row in enumerate(text) if not row and 0 < at <= room - 2]
    if not ends:
        return []
    rest = spread(heading, [(f" {OPEN.shown}", "accent"), (": full page ", "muted")], width)
    return [[], rest, *text[: ends[-1]]]


def try_rows(suggestion: Suggestion, first: bool, chosen: bool, width: int) -> list[Row]:
    """Return the rows of a suggestion: something to try, without evidence from this run."""
    heading: list[Row] = [[("─ To try (not findings)", "muted")]] if first else []
    row: Row = [("▶ " if chosen else "  ", "accent bold"), (printable(suggestion.text[:400]), "text bold")]
    row += [(f"  {printable(suggestion.because[:400])}", "muted")] if suggestion.because else []
    if suggestion.memory not in ("", NO_MEMORY):
        words = f"memory: {printable(suggestion.memory[:200])}"
        row.append((f"  {with_no_break_spaces(words) if len(words) <= SHORT_CHARACTERS else words}", "muted"))
    return [*heading, *wrap(row, width, 4)]


@screen
class Findings(ListBody):
    screen_name = "findings"
    title = "Findings"
    has_verdict = True
    about = (
        "What costs time in this run, most severe first. Each finding has evidence from this run and one line of"
        " advice. The speedup is what fixing it gains probably; where that is not known, none is given.",
        "Enter opens the page of a finding: meaning, detection and thresholds, what to do and what that costs. Alerts"
        " follow the findings, newest first, with the time since the start of the run.",
    )

    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        events = report.alerts, report.slow_steps, report.dropped, view.notes, view.details.throttle_events
        return report.findings, view.verdict, report.to_try, events, self.selected, self.opened

    def aside(self, view: View, options: ViewOptions) -> Row:
        if self.opened:
            return [(f"{OPEN.shown} or {RESTORE.shown}", "accent"), (" back to the list", "muted")]
        findings, alerts = len(view.report.findings), len(entries(view, options))
        return [
            (f"{units.plural(findings, 'finding', 'findings')}, {units.plural(alerts, 'alert', 'alerts')}", "muted")
        ]

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        findings = [finding.code for finding in listed_findings(view)]
        to_try = [("try", index) for index in range(len(view.report.to_try))]
        return [*findings, *to_try, *(("alert", index) for index in range(len(entries(view, options)) or 1))]

    def entry(self, key: object, view: View, options: ViewOptions, width: int, chosen: bool) -> list[Row]:
        if not isinstance(key, tuple):
            finding = next(finding for finding in listed_findings(view) if finding.code == key)
            past = gain_line(view.report, finding) if is_past(view.report, finding) else None
            return finding_rows(finding, width - 1, chosen, past)
        if key[0] == "try":
            return try_rows(view.report.to_try[key[1]], key[1] == 0, chosen, width - 2)
        alerts = entries(view, options)
        heading: list[Row] = [[("─ Alerts, newest first", "muted")]] if key[1] == 0 else []
        heading = [[], *heading] if heading and view.report.to_try else heading  # findings end with a gap already
        edge: Row = [("▶ " if chosen else "  ", "accent bold")]
        if not alerts:
            return [*heading, [*edge, (no_alert(view), "muted")]]
        return [*heading, *wrap([*edge, *alerts[key[1]]], width - 2, 4)]

    def body(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        """Return the list, and the page of the selected finding below it if there is room."""
        rows = super().body(view, options, width, height)
        keys = self.keys(view, options)
        key = keys[self.choice(keys)]
        if self.opened or not isinstance(key, str) or key not in CODES:
            return rows
        return [*rows, *below(key, width, height - len(rows))]

    def opened_rows(self, key: object, view: View, options: ViewOptions, width: int) -> list[Row]:
        if isinstance(key, tuple) and key[0] == "try":
            return try_rows(view.report.to_try[key[1]], True, False, width - 2)
        if isinstance(key, tuple):
            alerts = entries(view, options)
            alert: Row = alerts[key[1]] if key[1] < len(alerts) else [(f"{no_alert(view)}: {KINDS_OF_ALERT}", "muted")]
            return wrap([(" ", "text"), *alert], width - 2, 3, 40)
        finding = next(finding for finding in listed_findings(view) if finding.code == key)
        rows = finding_rows(finding, width - 1, False, gain_line(view.report, finding))
        if isinstance(key, str) and key in CODES:
            rows += page_rows(known_page(key), width - 2)
        return [cut(row, width) for row in rows]
