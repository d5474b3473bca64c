"""A run in few words: one screenful, the lines that end a run, one line."""

from __future__ import annotations

from monitor.diagnosis.answer import answer
from monitor.diagnosis.explain import gain_text
from monitor.model import group
from monitor.model.report import Finding, Report, usual_shares
from monitor.model.view import View
from monitor.reports import card, gpu_sections, listings, run_text
from monitor.reports.time_sections import NO_TIMES
from monitor.units import UNKNOWN, duration, money, number, pace, rate, share
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


def short(view: View) -> str:
    """Return the summary of an ended run: at most sixteen lines, the first one its card."""
    report, said = view.report, answer(view.report, view.verdict)
    lines = [f"trainmon: {end_line(view)}"]
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
        shares = usual_shares(report.phases).items()
        named = [f"{clean(name, 40)} {share(part)}" for name, part in shares if part > 0.005]
        lines.append("  step time: " + ", ".join(named[:6]))
    if report.metrics:
        values = [f"{clean(name, 40)} {number(row.last)}" for name, row in list(report.metrics.items())[:5]]
        lines.append("  metrics, last: " + ", ".join(values))
    if report.progress.steps_done or view.verdict.severity != "info":
        lines += [f"  {line}" for line in card.advice(said, evidence=1)]
    lines.append(f"  more: trainmon report {clean(report.run.id or 'last')}")
    return "\n".join(lines) + "\n"


def end_line(view: View) -> str:
    """Return the run in one line: how it ended, what it cost and lost, and whether it was faster than the last one.

    As `rft finished (exit code 0) after 4 h 12 min, $131, 41,200 tok/s, MFU 38%, 8% lost to data; 6% faster than the
    run of Thu 14:02`.
    """
    report, rates = view.report, view.report.throughput
    whole = rates.job if rates.job is not None and rates.job.tokens_per_second else rates
    of = f"rank {rates.rank}: " if rates.rank is not None and whole is rates else ""  # not the sum of all
    tokens = rate(whole.tokens_per_second, "tok/s")
    speed = pace(rates.steps_per_second) if tokens == UNKNOWN else of + tokens
    facts = [money(report.progress.cost)] if report.progress.cost is not None else []
    facts += [speed] if speed != UNKNOWN else []
    facts += [f"MFU {share(rates.mfu)}"] if rates.mfu is not None else []
    facts += [lost] if (lost := _lost(view.verdict)) else []
    outcome = f"{clean(report.run.name or report.run.id or 'a run')} {run_text.outcome(report)}"
    if facts:
        outcome += ("; " if report.outcome.error else ", ") + ", ".join(facts)  # an error is a sentence of its own
    return " ".join((outcome + (f"; {view.against}" if view.against else "")).split())


def _lost(verdict: Finding) -> str:
    """Return `8% lost to data`, `8% lost (gc)`: of the time since the first step, what fixing it likely gains."""
    lost = verdict.lost
    if lost is None or not lost.likely or not lost.of:
        return ""
    to = f"lost to {clean(verdict.culprit)}" if verdict.culprit else f"lost ({clean(verdict.code)})"
    return f"{share(lost.likely / lost.of)} {to}"


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
    largest = max(usual_shares(report.phases).items(), key=lambda phase: phase[1], default=None)
    parts.append(f"{clean(largest[0], 40)} {share(largest[1])}" if largest is not None else "")
    return "  ".join(part for part in parts if part)


def verdict_line(view: View) -> str:
    """Return the verdict and what fixing it gains; below it what to do."""
    finding, said = view.verdict, answer(view.report, view.verdict)
    most = gain_text(finding.gain)
    line = f"  {finding.severity}: {said.title}" + (f" ({most} faster)" if most else "")
    return f"{line}\n    → {said.to_do[0]}" if said.to_do else line
