"""Of several findings, which is the cause: what it explains is not blamed a second time, and it comes first. Pure."""

from __future__ import annotations

from monitor.model.parts import OTHER
from monitor.model.report import Finding

# What the finding on the left explains is not blamed a second time under the names on the right.
EXPLAINED = {
    "stalled": ("between steps", ("unaccounted-time",)),
    "input-bound": ("data", ("slow-steps", "slow-drift")),
    "checkpoint-stall": ("checkpoint", ("slow-steps", "slow-drift")),
    "eval-heavy": ("eval", ("slow-steps", "slow-drift")),
    "logging-overhead": ("logging", ("slow-steps", "slow-drift")),
}

# A machine that is held back makes the computing long: that is not blamed on the program as well.
HELD_BACK = (
    "thermal-throttle",
    "power-brake",
    "hw-slowdown",
    "power-capped",
    "low-clocks",
    "gpu-shared",
)
# Nor is what longer sequences take: there is more to do in those steps.
MORE_WORK = ("length-outliers",)
# Memory that fills costs time as well: fresh pages in each step, retries, at last the disk. What gets slower with it
# has that name.
MEMORY = ("oom-risk", "memory-leak")
COMPUTING = ("forward", "backward", "optimizer", "training", "generation", "log_probs")

# What leaves a GPU idle has one name: the cause.
IDLE = "gpu-starved"
LEAVES_IDLE = (
    "input-bound",
    "unaccounted-time",
    "sequential-generation",
    "sequential-batching",
    "checkpoint-stall",
    "eval-heavy",
    "logging-overhead",
    "straggler",
    "cpu-starved",
    "swap",
    "launch-bound",
    "small-batch",
    "synchronizing",
    "pageable-copies",
    "offload",
    "oversubscribed",
    "unfused-optimizer",
    "recompiling",
    "compile-fallback",
    "debug-settings",
    "memory-fragmented",
)
# Time in no phase, and launches that come too late, where what the host does meanwhile has a name.
NAMES_THE_WAIT = ("synchronizing", "pageable-copies", "offload")
# Launches come late for whatever else the host does before each of them. These explain all of it, whatever they cost:
# each launch is waited for or recorded, code that was to be compiled runs eagerly, the allocator starts over.
DELAYS_LAUNCHES = ("debug-settings", "compile-fallback", "memory-fragmented")
# And these where they take most of what late launches do.
TAKES_THE_HOST = ("unfused-optimizer", "recompiling", "sequential-generation", "sequential-batching")
MOST = 0.5
LAUNCHES = ("launch-bound", "small-batch")

SEVERITIES = ("critical", "warning", "info")
# Among equals these come first: they end the run, or falsify whatever else was measured...
BEFORE_ALL = ("gpu-error", "debug-settings", "gpu-shared", "memory-leak", "memory-fragmented", "oom-risk")
# ...and these last: they say that it is slower than it was, or was hoped to be, and not why.
NO_CAUSE = ("regressed", "below-expected")


def rank(finding: Finding) -> tuple[int, int, int, float]:
    """To sort by: gravest first; among equals the one whose mending can gain most."""
    code = finding.code
    first = BEFORE_ALL.index(code) if code in BEFORE_ALL else len(BEFORE_ALL)
    return SEVERITIES.index(finding.severity), first, code in NO_CAUSE, -(finding.lost_fraction or 0.0)


def once(findings: list[Finding]) -> list[Finding]:
    """The findings without those whose culprit is the cause of another one."""
    explained: set[tuple[str, str | None]] = {
        (code, cause)
        for finding in findings
        for cause, codes in [EXPLAINED.get(finding.code, ("", ()))]
        for code in codes
    }
    explained |= {("unaccounted-time", each.culprit) for each in findings if _grows_unnamed(each, findings)}
    if any(finding.code in (*HELD_BACK, *MORE_WORK) for finding in findings):
        explained |= {(code, phase) for code in ("slow-steps", "slow-drift") for phase in COMPUTING}
    if any(finding.code in MEMORY and finding.severity != "info" for finding in findings):
        explained |= {("slow-drift", phase) for phase in (*COMPUTING, OTHER)}
    if any(finding.code == "cpu-starved" for finding in findings):  # a drift beyond the neighbours' was told as such
        findings = [each for each in findings if each.code != "slow-steps" or each.severity != "info"]
    if _has(findings, NAMES_THE_WAIT):
        findings = [each for each in findings if each.code not in ("unaccounted-time", *LAUNCHES)]
    findings = _without_late_launches(findings)
    if any(each.code == "launch-bound" and each.culprit == OTHER and is_loud(each) for each in findings):
        findings = [each for each in findings if (each.code, each.culprit) != ("unaccounted-time", OTHER)]
    if _has(findings, LEAVES_IDLE):
        findings = [each for each in findings if each.code != IDLE]
    if _has(findings, ("oversubscribed",)):  # too many workers are why data comes late
        for each in findings:
            each.severity = "info" if each.code == "input-bound" else each.severity
    return [each for each in findings if (each.code, each.culprit) not in explained]


def _without_late_launches(findings: list[Finding]) -> list[Finding]:
    """Without launches that come too late, where what makes them late has a name."""
    if _has(findings, DELAYS_LAUNCHES):
        return [each for each in findings if each.code not in LAUNCHES]
    taken = sum(each.lost_fraction or 0.0 for each in findings if each.code in TAKES_THE_HOST and is_loud(each))
    return [each for each in findings if each.code not in LAUNCHES or not taken or taken < MOST * _lost(each)]


def _lost(symptom: Finding) -> float:
    return 1.0 if symptom.lost_fraction is None else symptom.lost_fraction


def _has(findings: list[Finding], codes: tuple[str, ...]) -> bool:
    return any(each.code in codes and is_loud(each) for each in findings)


def is_loud(finding: Finding) -> bool:
    return finding.severity != "info"


def _grows_unnamed(drift: Finding, findings: list[Finding]) -> bool:
    """Whether most of the time in no phase is what has grown there since the beginning."""
    unnamed = next((each for each in findings if each.code == "unaccounted-time"), None)
    if unnamed is None or drift.code != "slow-drift":
        return False
    return (drift.lost_fraction or 0.0) >= 0.5 * (unnamed.lost_fraction or 0.0)
