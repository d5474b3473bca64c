"""Speed against what was asked for. Pure."""

from __future__ import annotations

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import rate, share

ENOUGH = 20  # steps
BELOW = 0.90  # of what was asked for; a tenth is within what batches and neighbours do to a rate


def below_expected(evidence: Evidence) -> Finding | None:
    """Fewer tokens a second than `--expect-tps` says."""
    throughput = evidence.report.throughput
    wanted, whole, lately = throughput.expected_tokens_per_second, throughput.tokens_per_second, None
    if evidence.report.outcome.state == "running":
        lately = throughput.recent.tokens_per_second
    reached = max(whole or 0.0, lately or 0.0)  # a slow start is no slow run
    if not wanted or not whole or evidence.steps < ENOUGH or reached >= BELOW * wanted:
        return None
    of_late = f"of late {rate(lately, 'tok/s')}; " if lately else ""
    return Finding(
        "below-expected",
        "warning",
        f"{rate(whole, 'tok/s')}, {share(whole / wanted)} of the {rate(wanted, 'tok/s')} that were expected",
        [f"{of_late}the speed is that since the first step; expected by --expect-tps"],
        "The other findings say what may be missing; look at the clocks, too, and at who else uses the machine.",
        evidence.of_wall((1 - whole / wanted) * evidence.report.wall.stepping),
    )
