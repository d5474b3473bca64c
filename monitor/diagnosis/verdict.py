"""The verdict on a run in one line. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import BETWEEN_STEPS, MIN_STEPS, Evidence
from monitor.model.device.account_table import gain_text
from monitor.model.device.device_use import bound_text, busy_text
from monitor.model.report import Finding, usual_shares
from monitor.model.standing import may_stall, where
from monitor.model.steps.pace import SINCE
from monitor.step_blocks import OTHER, UNNAMED
from monitor.units import age, duration, share
from trainhooks.protocol.start_waits import IMPORT
from trainhooks.protocol.vocabulary import IDLE

NO_FINDING = "none"  # the code of a verdict that is no finding; it has a page, too
# Information that the verdict shows nevertheless: why there are no steps.
NO_STEPS = "nothing-reports"
STANDS_STILL = "stalled"  # likewise

MAX_NAMED_KINDS, MAX_NAMED_PHASES = 4, 3  # named in one line; the screens have tables of all
MIN_NAMED_SHARE = 0.01  # of step time
MIN_JUDGED_STEPS = 5
MIN_OUTSIDE_SHARE = 0.30  # of the time since the first step: with less outside the steps, their phases tell the whole


def verdict(findings: list[Finding], evidence: Evidence) -> Finding:
    """Return the first finding that is a warning or worse, or says that nothing moves; else where the time goes."""
    for finding in findings:
        if finding.severity != "info" or finding.code == STANDS_STILL:
            return finding
    if not evidence.steps:
        silent = next((finding for finding in findings if finding.code == NO_STEPS), None)
        return silent or _before_the_first_step(evidence)
    return _where_the_time_goes(evidence, no_findings=not findings)


def _no_finding(title: str, evidence: list[str] | None = None) -> Finding:
    return Finding(code=NO_FINDING, severity="info", title=title, evidence=evidence or [])


def _before_the_first_step(evidence: Evidence) -> Finding:
    now = evidence.open
    if evidence.report.progress.steps_done:
        return _no_finding("Steps are counted, but how long one takes is not known")
    if evidence.report.outcome.state != "running":
        return _no_finding("No steps recorded")
    if now.step is not None and now.step_seconds is not None:
        return _no_finding(f"First step open for {age(now.step_seconds)}" + (f", in {now.phase}" if now.phase else ""))
    if now.start is not None and now.start.seconds is not None and now.start.what != IMPORT:
        return _no_finding(f"Starting: {now.start.text} ({age(now.start.seconds)})")
    if now.spans:
        name, seconds = now.spans[-1]
        return _no_finding(f"Starting: {name} for {age(seconds)}")
    return _no_finding("Waiting for the first step")


def _where_the_time_goes(evidence: Evidence, no_findings: bool) -> Finding:
    report, held = evidence.report, evidence.held
    if evidence.is_running and held is not None and may_stall(evidence.state):
        last = evidence.state.main.wall.last_step
        since = held.since if last is None else min(last, held.since)
        found = _no_finding(f"No step for {age(held.since + held.seconds - since)}: it {where(held)}")
        found.advice = "Wait a little, or see where every thread is: trainmon stack."
        return found
    if evidence.steps < MIN_JUDGED_STEPS:
        return _no_finding("Too few steps to judge")
    bound = bound_text(report.device) if report.device is not None else ""
    bound = bound[:1].upper() + bound[1:]
    if bound and evidence.host_only:
        return _no_finding(f"{bound}; GPU phases unknown, host clock only", _busy_lines(evidence))
    outside, waits_for = _outside_the_steps(evidence)
    if outside is not None:
        outside.title += waits_for or (_no_bottleneck(evidence) if no_findings else "")
        return outside
    shares = usual_shares(report.phases)
    slowest = max(report.phases, key=lambda row: shares[row.name])
    name = UNNAMED if slowest.name == OTHER else slowest.name
    each = "per step"
    if slowest.is_seldom(evidence.steps):
        each = f"each, in {slowest.count:,} of {evidence.steps:,} steps"
    of = f"{share(shares[slowest.name])} of {'GPU' if bound else 'step'} time is {name}"
    title = f"{of}, {duration(slowest.usual_mean)} {each}"
    if bound:
        title = f"{bound}: {title}"
    if no_findings:
        title += _no_bottleneck(evidence)
    return _no_finding(title, _details(evidence, slowest.name))


def _no_bottleneck(evidence: Evidence) -> str:
    return (
        "; no bottleneck found"
        if evidence.has_steps()
        else f"; too short to judge: most findings need {MIN_STEPS} steps"
    )


def _outside_the_steps(evidence: Evidence) -> tuple[Finding | None, str]:
    """Return where the time goes in a loop that spends much of it outside the steps, and what it then waits for."""
    wall = evidence.report.wall
    loop, inside = wall.stepping, wall.steps
    if not loop or inside > (1 - MIN_OUTSIDE_SHARE) * loop:
        return None, ""
    parts = {f"{row.name} (in steps)": row.mean * row.count for row in evidence.report.phases if row.name != OTHER}
    parts["steps, in no named phase"] = max(0.0, inside - sum(parts.values()))
    parts |= {BETWEEN_STEPS: wall.between_steps, **wall.in_loop}
    (name, seconds), *others = sorted(parts.items(), key=lambda row: -row[1])
    rest = [f"{other} {share(some / loop)}" for other, some in others if some >= MIN_NAMED_SHARE * loop]
    found = _no_finding(
        f"{share(seconds / loop)} of the time {SINCE} is {name}; steps take {share(inside / loop)}",
        [f"then {', '.join(rest[:MAX_NAMED_PHASES])}", *_busy_lines(evidence)] if rest else _busy_lines(evidence),
    )
    return found, _busiest_role(evidence) if name == IDLE else ""


def _busiest_role(evidence: Evidence) -> str:
    """Return the role beside the loop that works most, where the loop mostly waits."""
    cycle = evidence.report.cycle
    work = {
        role.label: sum(part.share for part in role.parts if part.name != IDLE)
        for role in (cycle.roles if cycle is not None else ())
        if role.is_concurrent
    }
    busiest = max(work, key=lambda label: work[label], default=None)
    return "" if busiest is None else f"; beside it {busiest} works {share(work[busiest])}"


def _details(evidence: Evidence, slowest: str) -> list[str]:
    """Return typical steps by kind, where there are several kinds, and the next largest phases."""
    kinds = [
        f"{duration(baseline.typical())} ({name})"
        for kind, baseline in evidence.state.main.baselines.items()
        if baseline.limit and (name := ", ".join(filter(None, (kind.role, kind.stage and f"stage {kind.stage}"))))
    ]
    lines = [f"typical steps: {', '.join(kinds)}"] if 1 < len(kinds) <= MAX_NAMED_KINDS else []
    others = sorted(usual_shares(evidence.report.phases).items(), key=lambda phase: -phase[1])
    named = [(name, part) for name, part in others if name != slowest and part >= MIN_NAMED_SHARE]
    phases = [f"{name} {share(part)}" for name, part in named[:MAX_NAMED_PHASES]]
    lines += [f"then {', '.join(phases)}"] if phases else []
    return [*lines, *_busy_lines(evidence)]


def _busy_lines(evidence: Evidence) -> list[str]:
    device = evidence.device
    if device is None or device.busy_least is None:
        return []
    gain = gain_text(device)
    return [f"GPU {busy_text(device)} of the time in steps" + (f"; {gain}" if gain else "")]
