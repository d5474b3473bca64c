"""Alerts, the newest first: slow steps with their culprit and breakdown, and everything else worth a line."""

from __future__ import annotations

from monitor import units as fmt
from monitor.model.report import Finding, Report, SlowStep, View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.rows import Row, printable, wrap


def slow_step(slow: SlowStep, look: Look) -> Row:
    """`Slow step 214 (65.3 s): generation 45.2 s, ...; usual 18.0 s`, with the culprit in its colour."""
    role = "".join(f" {printable(part[:60])}" for part in (slow.role, slow.stage) if part)
    role += f" on rank {slow.rank}" if slow.rank else ""
    row: Row = [("▲ ", "bad bold"), (f"Slow step {slow.step}{role}", "text bold")]
    row.append((f" ({fmt.brief(slow.seconds)}): ", "text"))
    for index, (name, seconds) in enumerate(list(slow.breakdown().items())[:16]):
        row += [(", ", "muted")] if index else []
        text = f"{printable(name[:80])} {fmt.brief(seconds)}"
        row.append((text, f"{look.phases[name]} bold" if name == slow.culprit else "muted"))
    return [*row, ("; ", "muted"), (f"usual {fmt.brief(slow.baseline)}", "text")]


def entries(report: Report, notes: list[str], look: Look) -> list[Row]:
    """One row an entry, the newest first; what was lost on the way comes before everything."""
    slow_by_text = {str(slow): slow for slow in report.slow_steps}
    rows: list[Row] = []
    for alert in report.alerts:
        slow = slow_by_text.pop(alert.text, None)
        if slow is not None:
            rows.append(slow_step(slow, look))
            continue
        when = ""
        if report.run.started is not None and alert.time >= report.run.started:
            when = f"at {fmt.duration(float(int(alert.time - report.run.started)))}  "
        rows.append([("● ", "warning"), (when, "muted"), (printable(alert.text[:600]), "text")])
    rows += [slow_step(slow, look) for slow in slow_by_text.values()]
    rows.reverse()
    return [*losses(report), *([("· ", "accent"), (printable(note[:600]), "muted")] for note in notes), *rows]


def losses(report: Report) -> list[Row]:
    dropped = report.dropped
    lost = [f"{dropped.events:,} events dropped by the training"] if dropped.events else []
    lost += [f"{dropped.lines:,} lines unreadable or missing"] if dropped.lines else []
    lost += [f"{dropped.broken_off:,} journals break off: their last moment is missing"] if dropped.broken_off else []
    return [[("! ", "warning bold"), ("; ".join(lost), "warning")]] if lost else []


def others(view: View) -> list[Finding]:
    """What was found beside the verdict, which stands in the head."""
    return [finding for finding in view.report.findings if finding.code != view.verdict.code]


def beside(view: View) -> list[Row]:
    """What else was found, and what may help: `w` has the evidence, and all of the advice."""
    rows: list[Row] = []
    for finding in others(view):
        said: Row = [("  → ", "accent"), (printable(finding.advice[:300]), "muted")] if finding.advice else []
        tone = "warning" if finding.severity != "info" else "text"
        rows.append([("▌ ", tone), (printable(finding.title[:300]), tone), *said])
    for idea in view.report.to_try:
        because = f"  {printable(idea.because[:200])}" if idea.because else ""
        rows.append([("  to try  ", "accent"), (printable(idea.text[:300]), "text"), (because, "muted")])
    return rows


class Alerts(ScrollPanel):
    number = 5

    def data(self, view: View, look: Look) -> object:
        report = view.report
        return report.alerts, report.slow_steps, report.dropped, view.notes, others(view), report.to_try

    def heading(self, view: View, look: Look) -> str:
        return "Alerts"

    def aside(self, view: View, look: Look) -> Row:
        number = len(view.report.slow_steps)
        return [(f"{number:,} slow step{'s' if number != 1 else ''}", "muted")] if number else []

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        found = entries(view.report, view.notes, look)
        found = found or [[("  no alerts", "muted")]]
        rows = [row for entry in found for row in wrap(entry, width - 2)]
        return [*rows, *(row for entry in beside(view) for row in wrap(entry, width - 2, limit=2))]
