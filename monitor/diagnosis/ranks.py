"""Ranks that wait for each other. Pure."""

from __future__ import annotations

from monitor.diagnosis.evidence import Evidence
from monitor.model.fold import OTHER
from monitor.model.report import Finding, Straggler
from monitor.units import duration, share

GRAVE = 0.10  # of the others' time: every tenth GPU idles. Whether less is said at all `monitor.model.ranks` decides


def straggler(evidence: Evidence) -> Finding | None:
    """One rank makes the others wait."""
    found = evidence.report.straggler
    if found is None:
        return None
    wall = evidence.report.wall
    return Finding(
        "straggler",
        "warning" if found.share >= GRAVE else "info",
        f"Rank {found.rank} is slowest: the others wait for it {share(found.share)} of the time from step to step,"
        " at least",
        [
            f"usually {duration(found.seconds)} a step in backward and other collectives, over the last {found.steps}"
            " steps",
            *_where(evidence, found),
        ],
        f"Compare rank {found.rank}'s data wait, clocks, and neighbours on its host with the others'; give each rank"
        " the same amount of work (lengths, not only batch sizes), and log, save and evaluate on no rank alone.",
        found.share * evidence.of_wall(wall.steps + wall.between_steps),
    )


def _where(evidence: Evidence, found: Straggler) -> list[str]:
    """In what it takes longer, by the device's clock; else who waits longest, by the host's."""
    if found.culprit is not None:
        called = "time in no phase" if found.culprit == OTHER else found.culprit
        return [f"its own GPU takes longer in {called}: by the GPUs' clocks, the one that comes last is charged"]
    waits = [row for row in evidence.report.ranks if row.usual_wait is not None]
    longest = max(waits, key=lambda row: row.usual_wait or 0.0, default=None)
    if longest is None:
        return []
    return [f"rank {longest.rank} waits longest: {duration(longest.usual_wait)} a step, {share(longest.wait_share)}"]
