"""Alerts, the newest first: slow steps with their culprit and breakdown, and everything else worth a line."""

from __future__ import annotations

from monitor import units as fmt
from monitor.model.held_back import HeldBack
from monitor.model.report import Finding, Report, SlowStep, View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.rows import Row, printable, wrap


def slow_step(slow: SlowStep, look: Look, when: str = "") -> Row:
    """`Slow step 214 (65.3 s): generation 45.2 s, ...; usual 18.0 s`, with the culprit in its colour."""
    role = "".join(f" {printable(part[:60])}" for part in (slow.role, slow.stage) if part)
    role += f" on rank {slow.rank}" if slow.rank else ""
    row: Row = [("▲ ", "bad bold"), (when, "muted"), (f"Slow step {slow.step}{role}", "text bold")]
    row.append((f" ({fmt.brief(slow.seconds)}): ", "text"))
    for index, (name, seconds) in enumerate(list(slow.breakdown().items())[:16]):
        row += [(", ", "muted")] if index else []
        text = f"{printable(name[:80])} {fmt.brief(seconds)}"
        row.append((text, f"{look.phases[name]} bold" if name == slow.culprit else "muted"))
    return [*row, ("; ", "muted"), (f"usual {fmt.brief(slow.baseline)}", "text")]


def entries(view: View, look: Look) -> list[Row]:
    """One row an entry, the newest first; of stretches also when they were over. What was lost comes before them."""
    report, offset = view.report, view.details.wall_offset
    slow_by_text = {str(slow): slow for slow in report.slow_steps}
    stretches = view.details.held_back if offset is not None else ()
    timed: list[tuple[float, Row]] = []
    for alert in report.alerts:
        slow = slow_by_text.pop(alert.text, None)
        when = _when(report, alert.time)
        if slow is not None:
            timed.append((alert.time, slow_step(slow, look, when)))
        elif all(each.code != alert.code for each in stretches):
            timed.append((alert.time, [("● ", "warning"), (when, "muted"), (printable(alert.text[:600]), "text")]))
    for each in stretches:
        begin = each.start + (offset or 0.0)
        timed.append((begin, _stretch(report, each, offset or 0.0)))
    untimed = [slow_step(slow, look) for slow in slow_by_text.values()]  # of which no alert is kept any more
    rows = [*untimed, *(row for _, row in sorted(timed, key=lambda pair: pair[0]))]
    rows.reverse()
    return [*losses(report), *([("· ", "accent"), (printable(note[:600]), "muted")] for note in view.notes), *rows]


def _stretch(report: Report, held: HeldBack, offset: float) -> Row:
    """`■ at 25 s until 49 s  GPU 1 HW thermal, 1980 -> 1318 MHz, steps +54 %`; one that is open has no end yet."""
    end = _since(report, held.end + offset) if held.end is not None else ""
    when = (f"at {begin} " if (begin := _since(report, held.start + offset)) else "") + (f"until {end} " if end else "")
    return [("■ ", "bad bold"), (f"{when} " if when else "", "muted"), (printable(held.line()[:600]), "text")]


def _since(report: Report, time: float) -> str:
    started = report.run.started
    return fmt.age(time - started) if started is not None and time >= started else ""


def _when(report: Report, time: float) -> str:
    since = _since(report, time)
    return f"at {since}  " if since else ""


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
        events = report.alerts, report.slow_steps, view.details.held_back, report.dropped, view.notes
        return events, others(view), report.to_try

    def heading(self, view: View, look: Look) -> str:
        return "Alerts"

    def aside(self, view: View, look: Look) -> Row:
        number = len(view.report.slow_steps)
        return [(f"{number:,} slow step{'s' if number != 1 else ''}", "muted")] if number else []

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        found = entries(view, look)
        also = "; found beside the verdict above:" if others(view) else ""
        found = found or [[(f"  no alerts{also}", "muted")]]
        rows = [row for entry in found for row in wrap(entry, width - 2)]
        return [*rows, *(row for entry in beside(view) for row in wrap(entry, width - 2))]
