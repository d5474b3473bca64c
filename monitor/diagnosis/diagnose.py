"""Diagnose a run: all rules, the verdict in one line, the log of what changed. Pure."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from monitor.diagnosis import rules
from monitor.diagnosis.rule import MOST_COST, Evidence, Family, Rule, gpu_evidence, registered
from monitor.model.comparison.what_if import gain_of
from monitor.model.report import Finding, Lost, Report
from monitor.model.state import used_gpus

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
    findings = drop_explained([finding for finding in made if finding is not None])
    for finding in findings:
        set_gain(report, finding)
        if finding.code == "stalled":  # nobody knows when it goes on
            report.progress.eta_seconds = report.progress.eta_low = report.progress.eta_high = None
    return sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[bool, bool, int, int, float, int, str]:
    """By severity, priority and cost; ties by family and code, so that the order of the rules never counts.

    A run that ended, stands still, learns nothing or the wrong thing comes before all that costs time, however much.
    """
    rule = BY_CODE[finding.code]
    severity, family = SEVERITIES.index(finding.severity), _FAMILIES.index(rule.family)
    is_info, is_critical = finding.severity == "info", finding.severity == "critical"
    is_of_time = finding.cost is not None  # slower steps may be a symptom: what costs most comes first
    is_first = rule.priority <= LEARNS_NOTHING or (is_critical and rule.family is Family.PROGRESS and not is_of_time)
    return is_info, not is_first, severity, rule.priority, -(_lost(finding) or 0.0), family, finding.code


LEARNS_NOTHING = 1  # the priority of such findings; those on the run's end have a lower one
LEAST_PART = 0.5  # of a measured time, that a fix removes at least


def set_gain(report: Report, finding: Finding) -> None:
    """Set how much faster the steps are once a finding is fixed."""
    _set_range(finding)
    finding.gain = None if BY_CODE[finding.code].no_bound else gain_of(report, finding)
    gain, of = finding.gain, report.wall.stepping
    finding.recoverable = finding.lost = None
    if gain is not None:
        low, likely = (None if factor is None else of * (1.0 - 1.0 / factor) for factor in (gain.least, gain.likely))
        finding.recoverable = 1.0 - 1.0 / gain.most
        finding.lost = Lost(low, likely, of * finding.recoverable, of)


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
                taken += _lost(cause) or 0.0
    cost = _lost(symptom)
    return taken > 0.0 and taken >= MOST_COST * (1.0 if cost is None else cost)


def _lost(finding: Finding) -> float | None:
    """Return what a finding has cost, of all time; where that is not known, what it costs now, of the loop's."""
    return finding.cost if finding.lost_fraction is None else finding.lost_fraction
