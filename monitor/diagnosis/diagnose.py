"""Diagnose a run: all rules, the verdict in one line, the log of what changed. Pure."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from monitor.diagnosis import rules
from monitor.diagnosis.rule import MOST_COST, Evidence, Family, Rule, gpu_evidence, registered
from monitor.model.comparison.what_if import gain_of
from monitor.model.report import Finding, Report
from monitor.model.state import used_gpus
from monitor.units import share

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
        set_gain(report, finding)
    return sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[int, int, float, int, str]:
    """By severity, priority and cost; ties by family and code, so that the order of the rules never counts."""
    rule = BY_CODE[finding.code]
    severity, family = SEVERITIES.index(finding.severity), _FAMILIES.index(rule.family)
    return severity, rule.priority, -(finding.lost_fraction or 0.0), family, finding.code


LEAST_PART = 0.5  # of a measured time, that a fix removes at least


def set_gain(report: Report, finding: Finding) -> None:
    """Set how much faster the steps are once a finding is fixed."""
    _set_range(finding)
    finding.gain = None if BY_CODE[finding.code].no_bound else gain_of(report, finding)
    finding.recoverable = None if finding.gain is None else 1.0 - 1.0 / finding.gain.most


def _set_range(finding: Finding) -> None:
    """Set what a fix gains probably and at least: all and half of a measured time, unless the rule knows better."""
    lost = finding.lost_fraction
    rule = BY_CODE[finding.code]
    if lost is None or rule.no_bound or (finding.likely_fraction is None and rule.only_bound):
        finding.likely_fraction = finding.least_fraction = None
        return
    likely = lost if finding.likely_fraction is None else min(lost, finding.likely_fraction)
    least = LEAST_PART * likely if finding.least_fraction is None else finding.least_fraction
    finding.likely_fraction, finding.least_fraction = likely, min(likely, least)


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
