"""What keeping the device busy can gain, at most, and the findings that promise no more than that. Pure.

On a GPU the host queues work and then waits. What it waits for costs nothing while the device is busy: so whatever
shortens the host's time alone can gain the device's idle time, and nothing beyond.
"""

from __future__ import annotations

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import share

# Findings whose remedy takes idle time away from the device, and makes nothing that it computes any faster. A straggler
# is none of them: a device that waits in a collective runs its kernel, and counts as active.
OF_IDLE_TIME = frozenset(
    (
        "input-bound",
        "unaccounted-time",
        "logging-overhead",
        "checkpoint-stall",
        "cpu-starved",
        "oversubscribed",
        "swap",
        "disk-slow",
        "gpu-starved",
        "launch-bound",
        "synchronizing",
    )
)
WORTH = 0.05  # of the time since the first step: less idle time than this is no finding
ALARM = 0.15  # likewise: what can gain less is worth knowing, and no alarm; a wait for data is weighed alike
GRAVE = 0.30  # likewise, for what is called critical
NOT_KNOWN = "gain not known: neither SM activity nor CUDA events tell how busy the GPU is"


def bounded(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """The findings, of those that promise idle time only what there is of it."""
    if evidence.device is None:
        return findings
    return [found for each in findings if (found := _bounded(evidence, each)) is not None]


def _bounded(evidence: Evidence, finding: Finding) -> Finding | None:
    if finding.code not in OF_IDLE_TIME or finding.over or not evidence.steps:
        return finding  # also what was before the first step
    most = evidence.idle_most
    if most is None:
        finding.lost_fraction = None
        finding.evidence.append(NOT_KNOWN)
        if evidence.idle_least < ALARM:
            finding.severity = "info"
        return finding
    if most < WORTH:
        return None
    stepping = evidence.of_wall(evidence.report.wall.stepping)
    if finding.lost_fraction is not None and finding.lost_fraction > most * stepping:
        finding.lost_fraction = most * stepping
        finding.evidence.append(_because(evidence, most))
        if most < ALARM:
            finding.severity = "info"
        elif most < GRAVE and finding.severity == "critical":
            finding.severity = "warning"
    return finding


def _because(evidence: Evidence, most: float) -> str:
    device = evidence.device
    assert device is not None
    busy = f"the GPU is busy at least {share(1.0 - most)} of the time"
    if device.sm_active is not None and device.sm_active >= (device.queued or 0.0):
        busy = f"the GPU's SMs are active {share(device.sm_active)} of the time"
    return f"{busy}: no more than {share(most)} of it can be won"
