"""Time that ranks spend in collectives: transfers, and waits that no single rank causes.

Where other programs hold the cores, they delay ranks and transfers, and nothing is said here.
"""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import crowd_line
from monitor.model.ranks.arrivals import BACKWARD
from monitor.model.report import CollectivesRow, Finding
from monitor.units import duration, share, size
from trainhooks.protocol.calls import COLLECTIVE
from trainhooks.protocol.vocabulary import BETWEEN_STEPS

MIN_TRANSFER_SHARE = 0.35  # of the loop: what is left for training is below two thirds
MIN_UNEVEN_SHARE = 0.2  # of a step: beyond what the scheduler does to ranks that fill their cores
MANY_CALLS = 16  # a step: gradients come in some 25 MB a call by default
SMALL_CALL = 1 << 20  # bytes, mean: below that what each call costs by itself counts more than its bytes


@rule(
    "communication-bound",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("unaccounted-time",), if_most=True)),
)
def communication_bound(evidence: Evidence) -> Finding | None:
    """Find collectives whose transfers take a large part of the time."""
    row = evidence.report.collectives
    if row is None or crowd_line(evidence) is not None:
        return None
    steps = evidence.steps
    called = max(0.0, _called_seconds(evidence) - row.wait_outside * steps)
    transfer = row.transfer_seconds * steps
    part = evidence.loop_part(called + transfer)
    if part < MIN_TRANSFER_SHARE:
        return None
    each = (called + transfer) / steps
    lines = [f"{duration(each)} per step: {row.calls:,.1f} collectives with {size(row.bytes)}, without waits"]
    if transfer > called:
        lines.append(f"after the last gradient is ready backward takes {duration(row.transfer_seconds)} per step more")
    else:
        lines += [line for line in evidence.places(*_phases(evidence)) if line.endswith(f": {COLLECTIVE}")]
    return Finding(
        code="communication-bound",
        title=f"Communication-bound: collectives take {share(part)} of the time since the first step",
        evidence=lines,
        advice=_advice(row),
        lost_fraction=evidence.wall_part(called + transfer),
    )


def _phases(evidence: Evidence) -> list[str]:
    return [row.name for row in evidence.report.phases if row.name != BACKWARD] + [BETWEEN_STEPS]


def _called_seconds(evidence: Evidence) -> float:
    """Return the seconds that the program spends in collectives that it calls itself, waits included."""
    total = 0.0
    for phase in _phases(evidence):
        samples = evidence.sampled_seconds(phase)
        called = sum(seconds for sample, seconds in samples.items() if sample.place.activity == COLLECTIVE)
        spent = evidence.between_steps if phase == BETWEEN_STEPS else evidence.named_seconds(phase)
        total += spent * called / sum(samples.values()) if samples else 0.0
    return total


def _advice(row: CollectivesRow) -> str:
    if row.calls >= MANY_CALLS and row.bytes < SMALL_CALL * row.calls:
        return (
            "Fewer, larger calls: DDP's default buckets (bucket_cap_mb), one flat buffer for gradients that the program"
            " averages itself; gather numbers and objects once every so many steps, as one tensor."
        )
    return (
        "Exchange less: average gradients once for several batches (no_sync), send them in 16 bits (a DDP communication"
        " hook), more samples per rank and step. Sharded weights are sent in each pass: a model that fits needs none."
    )


@rule("uneven-ranks", Family.WAITING)
def uneven_ranks(evidence: Evidence) -> Finding | None:
    """Find ranks that wait for each other in turn."""
    row = evidence.report.collectives
    if row is None or evidence.report.straggler is not None or crowd_line(evidence) is not None:
        return None
    if row.wait_seconds < MIN_UNEVEN_SHARE * row.period:
        return None
    waits = [each for each in evidence.report.ranks if each.wait_seconds is not None]
    lines = [f"rank {each.rank} waits {duration(each.wait_seconds)} per step" for each in waits[:4]]
    part = row.wait_seconds / row.period
    return Finding(
        code="uneven-ranks",
        title=f"Uneven ranks: they wait for each other in turn, {share(part)} of step time",
        evidence=[f"mean of {row.steps} steps, by the times at which the ranks call their collectives", *lines],
        advice="Let each step take equally long on all ranks: batches of like length, and what is done now and then"
        " (collections, saving, logging, evaluation) at the same step on all of them.",
        lost_fraction=evidence.wall_part(row.wait_seconds * evidence.steps),
    )
