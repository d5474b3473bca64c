"""Diagnose a run: all rules, the verdict in one line, the log of what changed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules

from monitor.diagnosis import rules
from monitor.diagnosis.rule import BETWEEN_STEPS, MIN_STEPS, MOST_COST, Evidence, Family, Rule, gpu_evidence, registered
from monitor.model.comparison.what_if import recoverable_share
from monitor.model.device.device_use import bound_text, busy_text
from monitor.model.report import Finding
from monitor.model.state import used_gpus
from monitor.model.steps.pace import SINCE
from monitor.model.view import FindingChange
from monitor.step_blocks import OTHER
from monitor.units import age, duration, share, times

# All rules. They register themselves; a module in `monitor.diagnosis.rules` is found by listing that package.

SEVERITIES = ("critical", "warning", "info")  # gravest first
_FAMILIES = tuple(Family)


def _load_rules() -> dict[str, Rule]:
    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
    ordered = sorted(registered.values(), key=lambda rule: (_FAMILIES.index(rule.family), rule.code))
    return {rule.code: rule for rule in ordered}


BY_CODE = _load_rules()
RULES = tuple(BY_CODE.values())


def diagnose(evidence: Evidence) -> list[Finding]:
    """Return the findings, gravest first; of equal ones the one whose fix can gain most comes first."""
    state, report = evidence.state, evidence.report
    ended = report.outcome.state != "running"
    gpus = gpu_evidence(
        state.throttles, state.main.timelines, report.wall.total, ended, used_gpus(state), state.main.wall.first_step
    )
    made = (rule.check(gpus if rule.on_gpus else evidence) for rule in RULES)
    findings = limit_costs(evidence, drop_explained([finding for finding in made if finding is not None]))
    for finding in findings:
        finding.recoverable = recoverable_share(report, finding)
    return sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[int, int, float, int, str]:
    """By severity, priority and cost; ties by family and code, so that the order of the rules never counts."""
    rule = BY_CODE[finding.code]
    severity, family = SEVERITIES.index(finding.severity), _FAMILIES.index(rule.family)
    return severity, rule.priority, -(finding.lost_fraction or 0.0), family, finding.code


# Suppression: a finding that another one explains is left out.


def drop_explained(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that others explain; softened ones become information."""
    left = [finding for finding in findings if not _is_explained(finding, findings, shown_only=False)]
    left = [finding for finding in left if not _is_explained(finding, left, shown_only=True)]
    softened = {code for cause in left if cause.severity != "info" for code in BY_CODE[cause.code].softens}
    for finding in left:
        if finding.code in softened:
            finding.severity = "info"
    return left


def _is_explained(symptom: Finding, causes: list[Finding], shown_only: bool) -> bool:
    taken = 0.0
    for cause in causes:
        for row in BY_CODE[cause.code].suppresses:
            if row.if_shown is shown_only and row.matches(cause, symptom):
                if not row.if_most:
                    return True
                taken += cause.lost_fraction or 0.0
    cost = 1.0 if symptom.lost_fraction is None else symptom.lost_fraction
    return taken > 0.0 and taken >= MOST_COST * cost


# Gains limited by the GPU's idle time.
#
# The host queues work and then waits. While the GPU is busy, the host's time costs nothing: reducing it can gain at
# most the GPU's idle time.

MIN_IDLE_COST = 0.05  # of the time since the first step: less idle time than this is no finding
MIN_WARNING_SHARE = 0.15  # likewise: what can gain less is information; a wait for data is judged by the same share
MIN_CRITICAL_SHARE = 0.30  # likewise, for critical findings
GAIN_UNKNOWN = "gain unknown: neither SM activity nor CUDA events show how busy the GPU is"


def limit_costs(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Return the findings with costs limited to the GPU's idle time where their fix removes nothing else."""
    if evidence.device is None or not evidence.steps:
        return findings
    return [finding for finding in findings if _limit_cost(evidence, finding)]


def _limit_cost(evidence: Evidence, finding: Finding) -> bool:
    """Limit what a finding costs; False where there is no idle time worth a finding."""
    if not BY_CODE[finding.code].idle_time or finding.over:
        return True  # also what happened before the first step
    most = evidence.max_idle
    if most is None:
        finding.lost_fraction = None
        finding.evidence.append(GAIN_UNKNOWN)
        if evidence.min_idle < MIN_WARNING_SHARE:
            finding.severity = "info"
        return True
    if most < MIN_IDLE_COST:
        return False
    if finding.lost_fraction is not None and finding.lost_fraction > most * evidence.loop_share:
        finding.lost_fraction = most * evidence.loop_share
        finding.evidence.append(_idle_reason(evidence, most))
        if most < MIN_WARNING_SHARE:
            finding.severity = "info"
        elif most < MIN_CRITICAL_SHARE and finding.severity == "critical":
            finding.severity = "warning"
    return True


def _idle_reason(evidence: Evidence, most: float) -> str:
    device = evidence.device
    if device is not None and device.sm_active is not None and device.sm_active >= (device.queued or 0.0):
        return f"SMs active {share(device.sm_active)} of the time: at most {share(most)} to gain"
    return f"GPU busy at least {share(1.0 - most)} of the time: at most {share(most)} to gain"


# The verdict on a run in one line.

NO_FINDING = "none"  # the code of a verdict that is no finding; it has a page, too
# Information that the verdict shows nevertheless: why there are no steps.
NO_STEPS = "nothing-reports"

MAX_NAMED_KINDS, MAX_NAMED_PHASES = 4, 3  # named in one line; the screens have tables of all
MIN_NAMED_SHARE = 0.01  # of step time
MIN_JUDGED_STEPS = 5
MIN_OUTSIDE_SHARE = 0.30  # of the time since the first step: with less outside the steps, their phases tell the whole


def verdict(findings: list[Finding], evidence: Evidence) -> Finding:
    """Return the first finding that is a warning or worse, else a line that says where the time goes."""
    for finding in findings:
        if finding.severity != "info":
            return finding
    if not evidence.steps:
        silent = next((finding for finding in findings if finding.code == NO_STEPS), None)
        return silent or _before_the_first_step(evidence)
    return _where_the_time_goes(evidence, no_findings=not findings)


def _no_finding(title: str, evidence: list[str] | None = None) -> Finding:
    return Finding(code=NO_FINDING, severity="info", title=title, evidence=evidence or [])


def _before_the_first_step(evidence: Evidence) -> Finding:
    now = evidence.open
    if evidence.report.outcome.state != "running":
        return _no_finding("No steps recorded")
    if now.step is not None and now.step_seconds is not None:
        return _no_finding(f"First step open for {age(now.step_seconds)}" + (f", in {now.phase}" if now.phase else ""))
    if now.spans:
        name, seconds = now.spans[-1]
        return _no_finding(f"Starting: {name} for {age(seconds)}")
    return _no_finding("Waiting for the first step")


def _where_the_time_goes(evidence: Evidence, no_findings: bool) -> Finding:
    report = evidence.report
    if evidence.steps < MIN_JUDGED_STEPS:
        return _no_finding("Too few steps to judge")
    bound = bound_text(report.device) if report.device is not None else ""
    bound = bound[:1].upper() + bound[1:]
    if bound and evidence.host_only:
        return _no_finding(f"{bound}; GPU phases unknown, host clock only", _busy_lines(evidence))
    outside = _outside_the_steps(evidence)
    if outside is not None:
        outside.title += _no_bottleneck(evidence) if no_findings else ""
        return outside
    slowest = max(report.phases, key=lambda row: row.share)
    name = "time in no named phase" if slowest.name == OTHER else slowest.name
    each = "per step"
    if slowest.is_seldom(evidence.steps):
        each = f"each, in {slowest.count:,} of {evidence.steps:,} steps"
    title = f"{share(slowest.share)} of {'GPU' if bound else 'step'} time is {name}, {duration(slowest.mean)} {each}"
    if bound:
        title = f"{bound}: {title}"
    if no_findings:
        title += _no_bottleneck(evidence)
    return _no_finding(title, _details(evidence, slowest.name))


def _no_bottleneck(evidence: Evidence) -> str:
    return "; no bottleneck found" if evidence.has_steps() else f"; most findings need {MIN_STEPS} steps"


def _outside_the_steps(evidence: Evidence) -> Finding | None:
    """Return where the time goes in a loop that spends much of it outside the steps."""
    wall = evidence.report.wall
    loop, inside = wall.stepping, wall.steps
    if not loop or inside > (1 - MIN_OUTSIDE_SHARE) * loop:
        return None
    parts = {f"{row.name} (in steps)": row.mean * row.count for row in evidence.report.phases if row.name != OTHER}
    parts["steps, in no named phase"] = max(0.0, inside - sum(parts.values()))
    parts |= {BETWEEN_STEPS: wall.between_steps, **wall.in_loop}
    (name, seconds), *others = sorted(parts.items(), key=lambda row: -row[1])
    rest = [f"{other} {share(some / loop)}" for other, some in others if some >= MIN_NAMED_SHARE * loop]
    return _no_finding(
        f"{share(seconds / loop)} of the time {SINCE} is {name}; steps take {share(inside / loop)}",
        [f"then {', '.join(rest[:MAX_NAMED_PHASES])}", *_busy_lines(evidence)] if rest else _busy_lines(evidence),
    )


def _details(evidence: Evidence, slowest: str) -> list[str]:
    """Return typical steps by kind, where there are several kinds, and the next largest phases."""
    kinds = [
        f"{duration(baseline.typical())} ({name})"
        for kind, baseline in evidence.state.main.baselines.items()
        if baseline.limit and (name := ", ".join(filter(None, (kind.role, kind.stage and f"stage {kind.stage}"))))
    ]
    lines = [f"typical steps: {', '.join(kinds)}"] if 1 < len(kinds) <= MAX_NAMED_KINDS else []
    others = sorted((row for row in evidence.report.phases if row.name != slowest), key=lambda row: -row.share)
    phases = [f"{row.name} {share(row.share)}" for row in others[:MAX_NAMED_PHASES] if row.share >= MIN_NAMED_SHARE]
    lines += [f"then {', '.join(phases)}"] if phases else []
    return [*lines, *_busy_lines(evidence)]


def _busy_lines(evidence: Evidence) -> list[str]:
    device = evidence.device
    if device is None or device.busy_least is None:
        return []
    limit = f"; without idle time at most {times(device.gain_limit)} as fast" if device.gain_limit is not None else ""
    return [f"GPU {busy_text(device)} of the time in steps{limit}"]


# The log of changed findings, for one reader that follows a run. The moment is passed in.

# A finding that leaves for a moment and comes back has not cleared: half a minute is the memory of a recent rate.
CLEARED_AFTER = 30.0
LEVELS = ("info", "warning", "critical")
LOGGED = LEVELS[1:]  # information is not logged
MAX_CHANGES = 200


@dataclass(slots=True)
class _Known:
    finding: Finding
    last_found: float


@dataclass(slots=True)
class FindingLog:
    """Changes between one diagnosis and the next; the newest `MAX_CHANGES` are kept."""

    turns: list[FindingChange] = field(default_factory=list)
    _known: dict[str, _Known] = field(default_factory=dict)
    _has_read: bool = False

    def update(self, findings: list[Finding], now: float) -> list[FindingChange]:
        """Take the findings of one moment and return what changed. What the first call holds is `present`, not new."""
        new = []
        for finding in findings:
            known = self._known.get(finding.code)
            if finding.severity not in LOGGED:
                continue  # a known finding that got milder is not logged
            if known is None:
                new.append(FindingChange(now, "appeared" if self._has_read else "present", finding))
            elif LEVELS.index(finding.severity) > LEVELS.index(known.finding.severity):
                new.append(FindingChange(now, "worse", finding))
            self._known[finding.code] = _Known(finding, now)
        for code, known in list(self._known.items()):
            if now - known.last_found >= CLEARED_AFTER:
                del self._known[code]
                new.append(FindingChange(now, "cleared", known.finding))
        self._has_read = True
        self.turns = [*self.turns, *(change for change in new if change.kind != "present")][-MAX_CHANGES:]
        return new
