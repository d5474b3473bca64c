"""How grave a finding about time is: one function, by what its cause costs and how that is known. Pure."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING

from monitor.model.report import Finding
from monitor.units import share

if TYPE_CHECKING:
    from monitor.diagnosis.rule import Evidence, Rule

# Of the time since the first step, one-offs apart.
MIN_COST = 0.03  # without it 1.03x as fast: a program's runs differ by as much
WARNING_COST = 0.10  # 1.11x as fast: worth an edit
CRITICAL_COST = 0.30  # 1.43x as fast: whatever else there is can wait
# Of the time: SMs of a GPU that never waits may be idle as long, between kernels and at their ends.
BUSY_IDLE = 0.15

LEVELS = ("", "info", "warning", "critical")
GAIN_UNKNOWN = "gain unknown: neither SM activity nor CUDA events show how busy the GPU is"


def level_of(cost: float) -> int:
    """Return how grave it is to lose this share of the time since the first step, as a place in `LEVELS`."""
    return bisect((MIN_COST, WARNING_COST, CRITICAL_COST), cost)


def judge(rule: Rule, finding: Finding, evidence: Evidence | None) -> Finding | None:
    """Return a finding with its severity; None where it costs too little to be said.

    Args:
        evidence: None for what the GPU itself shows, whose rules state what it costs.
    """
    is_bound = rule.no_bound or (rule.only_bound and finding.likely_fraction is None)
    if not finding.severity and finding.cost is None and evidence is not None and evidence.loop_share:
        lost = finding.lost_fraction if is_bound or finding.likely_fraction is None else finding.likely_fraction
        finding.cost = None if lost is None else lost / evidence.loop_share
    most = 1.0 if evidence is None else _limit_cost(rule, finding, evidence)
    # A severity of the rule's own: it is not about time, or not known what it costs.
    level = LEVELS.index(finding.severity) if finding.severity else _level(finding, most, is_bound)
    most_grave = "info" if not finding.certain else "warning" if finding.estimated else "critical"
    finding.severity = LEVELS[min(level, level_of(most), LEVELS.index(most_grave))]
    return finding if finding.severity else None


def _level(finding: Finding, most: float, is_bound: bool) -> int:
    if finding.cost is None:
        return LEVELS.index("info")  # that it is there, is all that is known
    finding.cost = min(1.0, most, finding.cost)
    level = level_of(finding.cost)
    if is_bound and not finding.estimated:  # what a fix gains is somewhere below it, or not known at all
        level = max(0, level - 1)
    return level - 1 if finding.outside and level > 1 else level  # the program cannot mend it


# The host queues work and then waits. While the GPU is busy, the host's time costs nothing: reducing it can gain at
# most the GPU's idle time.


def _limit_cost(rule: Rule, finding: Finding, evidence: Evidence) -> float:
    """Limit what a finding costs to the GPU's idle time, where its fix removes nothing else.

    Returns:
        What it can cost at most, of the time since the first step.
    """
    if evidence.device is None or not evidence.steps or not rule.idle_time or finding.over:
        return 1.0  # also what happened before the first step
    most = evidence.max_idle
    if most is None:
        finding.lost_fraction = None
        finding.evidence.append(GAIN_UNKNOWN)
        finding.estimated = True
        finding.certain &= evidence.min_idle >= BUSY_IDLE
        return 1.0
    if finding.lost_fraction is not None and finding.lost_fraction > most * evidence.loop_share:
        finding.lost_fraction = most * evidence.loop_share
        finding.evidence.append(_idle_reason(evidence, most))
        finding.certain &= most >= BUSY_IDLE
    if finding.lost_fraction is not None and finding.likely_fraction is not None:
        finding.likely_fraction = min(finding.lost_fraction, finding.likely_fraction)
    return most


def _idle_reason(evidence: Evidence, most: float) -> str:
    device = evidence.device
    if device is not None and device.sm_active is not None and device.sm_active >= (device.queued or 0.0):
        return f"SMs active {share(device.sm_active)} of the time: at most {share(most)} to gain"
    return f"GPU busy at least {share(1.0 - most)} of the time: at most {share(most)} to gain"
