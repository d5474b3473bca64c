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
    if not wanted or not reached or evidence.steps < ENOUGH or reached >= BELOW * wanted:
        return None
    return Finding(
        "below-expected",
        "warning",
        f"{rate(reached, 'tok/s')}, {share(reached / wanted)} of the {rate(wanted, 'tok/s')} that were expected",
        [f"over the whole run {rate(whole, 'tok/s')}; expected by --expect-tps"],
        "The other findings say what may be missing; look at the clocks, too, and at who else uses the machine.",
        1 - reached / wanted,
    )
