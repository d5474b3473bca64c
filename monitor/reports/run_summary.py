"""A run in few words: one screenful, the lines that end a run, one line."""

from __future__ import annotations

from monitor.diagnosis.explain import gain_text
from monitor.model import group
from monitor.model.report import Finding, Report
from monitor.model.view import View
from monitor.reports import card, gpu_sections, listings, run_text
from monitor.reports.time_sections import NO_TIMES
from monitor.units import UNKNOWN, duration, number, share
from trainhooks.protocol.limits import clean

CONSOLE_LINES = 5  # of the program's output


def screen(view: View) -> str:
    """Return one screenful where no dashboard can be shown: the short report, the machine and the newest output."""
    lines = [f"[{view.label}]"] if view.label else []
    lines += card.lines(view)
    for section in (gpu_sections.gpus(view.report), gpu_sections.host(view.report)):
        if section is not None:
            lines += ["", *listings.plain_section(section)]
    if view.console:
        lines += ["", "Output", *(f"  {line}" for line in view.console[-CONSOLE_LINES:])]
    return "\n".join(lines) + "\n"


def short(report: Report, verdict: Finding) -> str:
    """Return the summary of an ended run: at most sixteen lines."""
    lines = [f"trainmon: {clean(report.run.name or '')} {run_text.outcome(report)}".replace("  ", " ")]
    if report.group:
        lines.append(f"  {clean(group.line(report.group))}")
    if report.progress.steps_done:
        rates = run_text.speeds(report.throughput)
        lines.append(f"  {run_text.progress(report)}" + (f"; {rates}" if rates else ""))
    else:
        lines += _silence(report)
    if report.wall.total and report.progress.steps_done:
        lines.append(f"  wall time: {_account(report)}")
    if report.phases:
        shares = [f"{clean(row.name, 40)} {share(row.share)}" for row in report.phases if row.share > 0.005][:6]
        lines.append("  step time: " + ", ".join(shares))
    if report.metrics:
        values = [f"{clean(name, 40)} {number(row.last)}" for name, row in list(report.metrics.items())[:5]]
        lines.append("  metrics, last: " + ", ".join(values))
    if report.progress.steps_done or verdict.severity != "info":
        lines += [f"  {line}" for line in card.advice(report, verdict, evidence=1)]
    lines.append(f"  more: trainmon report {clean(report.run.id or 'last')}")
    return "\n".join(lines) + "\n"


def _silence(report: Report) -> list[str]:
    """Return that there are no steps, with one cause where it is known. The report has the others."""
    finding_ = next((finding for finding in report.findings if finding.code == "nothing-reports"), None)
    if finding_ is None:
        return ["  no step measured"]
    return [f"  {finding_.title}", *(f"    {line}" for line in finding_.evidence if len(finding_.evidence) == 1)]


def _account(report: Report) -> str:
    wall = report.wall
    if wall.startup is None:
        return NO_TIMES
    total = wall.total or 1.0
    largest = sorted(wall.parts, key=lambda part: -part[1])[:6]
    return ", ".join(f"{clean(name, 40)} {share(part / total)}" for name, part in largest if part >= 0.01 * total)


# The state of a run in one line of plain text.


def line(view: View) -> str:
    """Return `12 min 4 s  214 of 600 steps (36%), about 20 min left  5.1k tokens/s  generation 61%`."""
    report = view.report
    head = report.outcome.state if report.outcome.state != "running" else duration(report.progress.elapsed_seconds)
    parts = [f"[{view.label}]" if view.label else "", head if head != UNKNOWN else "", run_text.progress(report)]
    if report.outcome.state == "running":
        parts.append(run_text.speed(report.throughput.recent) or run_text.speed(report.throughput))
    largest = max(report.phases, key=lambda row: row.share, default=None)
    parts.append(f"{clean(largest.name, 40)} {share(largest.share)}" if largest is not None else "")
    return "  ".join(part for part in parts if part)


def verdict_line(view: View) -> str:
    """Return the verdict and what fixing it gains."""
    finding = view.verdict
    most = gain_text(finding.gain)
    return f"  {finding.severity}: {clean(finding.title)}" + (f" ({most} faster)" if most else "")
