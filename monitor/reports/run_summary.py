"""A run in few words: one screenful, the lines that end a run, one line."""

from __future__ import annotations

from monitor.diagnosis.explain import gain_text
from monitor.model.report import Report
from monitor.model.view import View
from monitor.reports import gpu_sections, listings, run_text
from monitor.reports.time_sections import NO_TIMES, wall
from monitor.units import UNKNOWN, duration, number, share
from trainhooks.protocol.limits import clean
from trainhooks.protocol.start_waits import IMPORT

CONSOLE_LINES = 5  # of the program's output


def screen(view: View) -> str:
    """Return one screenful where no dashboard can be shown: its main figures without charts."""
    report = view.report
    lines = [f"[{view.label}]"] if view.label else []
    lines += [run_text.title(report), *run_text.head(report)]
    if report.outcome.state == "running":
        lines.append(f"  {'Now':<9} {_now(view)}")
    lines.append(f"  {'Verdict':<9} {clean(view.verdict.title)}")
    if not report.progress.steps_done:
        lines += [f"  {'':<9} {clean(line)}" for line in (*view.verdict.evidence, view.verdict.advice) if line]
    shown = (wall(report), gpu_sections.phases(report), gpu_sections.gpus(report), gpu_sections.host(report))
    for section in (*shown, run_text.reservations(report)):
        if section is not None:
            lines += ["", section.title, *(f"  {line}" for line in section.lines)]
            lines += listings.plain(section.rows, section.left) if section.rows else []
    if view.console:
        lines += ["", "Output", *(f"  {line}" for line in view.console[-CONSOLE_LINES:])]
    return "\n".join(lines) + "\n"


def short(report: Report) -> str:
    """Return the summary of an ended run: at most nine lines."""
    lines = [f"trainmon: {clean(report.run.name or '')} {run_text.outcome(report)}".replace("  ", " ")]
    if report.run.trainings:
        lines.append(f"  {clean(report.run.trainings)}")
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
    shown = [finding for finding in report.findings if report.progress.steps_done or finding.severity != "info"]
    lines += [f"  {finding.severity}: {clean(finding.title)}" for finding in shown[:2]]
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


def _now(view: View) -> str:
    """Return the open step or span in words."""
    work = view.open
    ended = " ended" if work.step_seconds is None else _since(work.step_seconds)
    facts = [f"no step since the restart ({duration(work.restarting)})"] if work.restarting is not None else []
    facts += [f"step {work.step:,}{ended}"] if work.step is not None else []
    if work.phase:
        facts.append(f"phase {clean(work.phase)}" + _since(work.phase_seconds))
    facts += [f"{clean(name)} for {duration(seconds)}" for name, seconds in work.spans]
    if work.start is not None and not (work.spans and work.start.what == IMPORT):
        seconds = "" if work.start.seconds is None else f" ({duration(work.start.seconds)})"
        facts.append(clean(work.start.text) + seconds)
    if work.silent_for is not None and work.silent_for > 5:
        facts.append(f"no heartbeat for {duration(work.silent_for)}")
    return ", ".join(facts) or "unknown"


def _since(seconds: float | None) -> str:
    return f" for {duration(seconds)}" if seconds is not None else ""


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


def verdict(view: View) -> str:
    """Return the verdict and what fixing it gains."""
    finding = view.verdict
    most = gain_text(finding.gain)
    return f"  {finding.severity}: {clean(finding.title)}" + (f" ({most} faster)" if most else "")
