"""A report in plain text and in Markdown, and the few lines that end a run."""

from __future__ import annotations

from monitor.model.report import Report, View
from monitor.reports import machine, table
from monitor.reports import sections as parts
from monitor.units import duration, number, share
from trainhooks.events import clean

CONSOLE_LINES = 5


def text(report: Report) -> str:
    """The whole report for a terminal or a mail, without markup."""
    lines = [parts.title(report), *_head(report)]
    for section in parts.sections(report):
        lines += ["", section.title, *(f"  {line}" for line in section.lines)]
        if section.rows:
            lines += table.plain(section.rows, section.left)
    return "\n".join(lines) + "\n"


def markdown(report: Report) -> str:
    """The whole report for an issue or a pull request."""
    lines = [f"# {table.escape(parts.title(report))}", ""]
    lines += table.markdown([("", ""), *parts.summary(report)], left=2)
    for section in parts.sections(report):
        lines += ["", f"## {section.title}", ""]
        for line in section.lines:
            nested = line.startswith(" ")
            lines.append(f"{'  ' if nested else ''}- {table.escape(line.strip())}")
        if section.rows:
            lines += ([""] if section.lines else []) + table.markdown(section.rows, section.left)
    return "\n".join(lines) + "\n"


def screen(view: View) -> str:
    """One screenful for where no dashboard can be shown: what it says at a glance, without its charts."""
    report = view.report
    lines = [f"[{view.label}]"] if view.label else []
    lines += [parts.title(report), *_head(report)]
    if report.outcome.state == "running":
        lines.append(f"  {'Now':<9} {_now(view)}")
    lines.append(f"  {'Verdict':<9} {clean(view.verdict.title)}")
    if not report.progress.steps_done:
        lines += [f"  {'':<9} {clean(line)}" for line in (*view.verdict.evidence, view.verdict.advice) if line]
    told = (parts.wall(report), parts.phases(report), machine.gpus(report), machine.host(report))
    for section in (*told, parts.reservations(report)):
        if section is not None:
            lines += ["", section.title, *(f"  {line}" for line in section.lines)]
            lines += table.plain(section.rows, section.left) if section.rows else []
    if view.console:
        lines += ["", "Output", *(f"  {line}" for line in view.console[-CONSOLE_LINES:])]
    return "\n".join(lines) + "\n"


def short(report: Report) -> str:
    """What is worth saying when a run has ended: eight lines at most."""
    lines = [f"trainmon: {clean(report.run.name or '')} {parts.outcome(report)}".replace("  ", " ")]
    if report.progress.steps_done:
        speed = parts.speed(report.throughput)
        lines.append(f"  {parts.progress(report)}" + (f"; {speed}" if speed else ""))
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
    told = [finding for finding in report.findings if report.progress.steps_done or finding.severity != "info"]
    lines += [f"  {finding.severity}: {clean(finding.title)}" for finding in told[:2]]
    lines.append(f"  more: trainmon report {clean(report.run.id or 'last')}")
    return "\n".join(lines) + "\n"


def _silence(report: Report) -> list[str]:
    """That there are no steps; why, where one cause is at hand. The report has the others."""
    found = next((finding for finding in report.findings if finding.code == "nothing-reports"), None)
    if found is None:
        return ["  no step was measured"]
    return [f"  {found.title}", *(f"    {line}" for line in found.evidence if len(found.evidence) == 1)]


def _head(report: Report) -> list[str]:
    return [f"  {label:<9} {told}" for label, told in parts.summary(report)]


def _account(report: Report) -> str:
    wall = report.wall
    if wall.startup is None:
        return parts.NO_TIMES
    total = wall.total or 1.0
    named = [("start-up", wall.startup), ("steps", wall.steps), *wall.spans.items()]
    named += [("between steps", wall.between_steps), ("teardown", wall.teardown)]
    worth = sorted(((name, seconds) for name, seconds in named if seconds >= 0.01 * total), key=lambda part: -part[1])
    return ", ".join(f"{clean(name, 40)} {share(seconds / total)}" for name, seconds in worth[:6])


def _now(view: View) -> str:
    """What the training is in the middle of."""
    work = view.open
    ended = " has ended" if work.step_seconds is None else _since(work.step_seconds)
    said = [f"no step since the restart, {duration(work.restarting)}"] if work.restarting is not None else []
    said += [f"step {work.step:,}{ended}"] if work.step is not None else []
    if work.phase:
        said.append(f"phase {clean(work.phase)}" + _since(work.phase_seconds))
    said += [f"{clean(name)} for {duration(seconds)}" for name, seconds in work.spans]
    if work.silent_for is not None and work.silent_for > 5:
        said.append(f"not heard of for {duration(work.silent_for)}")
    return ", ".join(said) or "not known"


def _since(seconds: float | None) -> str:
    return f" for {duration(seconds)}" if seconds is not None else ""
