"""Time that ranks spend in collectives: transfers, and waits that no single rank causes.

Where other programs hold the cores, they delay ranks and transfers: what threads waited for a core does not count.
"""

from __future__ import annotations

from monitor.diagnosis import traced
from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import beyond_crowd
from monitor.diagnosis.rules.waiting import USUAL_UNNAMED
from monitor.model.device.kernel_classes import COMMUNICATION
from monitor.model.ranks.arrivals import BACKWARD, MIN_STEPS
from monitor.model.ranks.rank_samples import RankSamples
from monitor.model.report import CollectivesRow, Finding
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.step_blocks import OTHER
from monitor.units import duration, share, size
from trainhooks.protocol.calls import COLLECTIVE
from trainhooks.protocol.places import Place

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
    if row is None:
        return _exposed(evidence)
    steps = evidence.steps
    others = [phase.name for phase in evidence.report.phases if phase.name not in (OTHER, BACKWARD)]
    unnamed, inside = _stands(evidence, *UNNAMED), _stands(evidence, BACKWARD)
    outside = unnamed + sum(_stands(evidence, name) for name in others)
    own = max(0.0, unnamed - row.wait_outside * steps)
    called = max(0.0, outside - row.wait_outside * steps)
    called += max(0.0, inside - (row.wait_seconds - row.wait_outside) * steps)
    transfer = row.transfer_seconds * steps
    part = evidence.loop_part(called + transfer)
    # What the program calls itself it can call less often: much of it is worth as much as any other time in no phase.
    is_own = beyond_crowd(evidence, evidence.loop_part(own)) >= USUAL_UNNAMED
    if not is_own and beyond_crowd(evidence, part) < MIN_TRANSFER_SHARE:
        return None
    each = (called + transfer) / steps
    lines = [f"{duration(each)} per step: {row.calls:,.1f} collectives with {size(row.bytes)}, without waits"]
    if transfer > called:
        lines.append(f"after the last gradient is ready backward takes {duration(row.transfer_seconds)} per step more")
    else:
        places = evidence.places(*UNNAMED, BACKWARD, *others)
        lines += [line for line in places if line.endswith(f": {COLLECTIVE}")]
    return Finding(
        code="communication-bound",
        title=f"Communication-bound: collectives take {share(part)} of the time since the first step",
        evidence=lines,
        advice=_advice(row, own, called - own, transfer),
        lost_fraction=evidence.wall_part(called + transfer),
    )


def _exposed(evidence: Evidence) -> Finding | None:
    """Find collectives of GPUs beside which nothing else runs, by a trace of their kernels."""
    trace = traced.kernel_trace(evidence)
    if trace is None or trace.exposed is None:
        return None
    straggler = evidence.report.straggler
    part = trace.exposed - (straggler.share if straggler is not None else 0.0)  # kernels that wait for it run, too
    if part < MIN_TRANSFER_SHARE:
        return None
    kernels = traced.kernels(evidence, COMMUNICATION)
    seconds = sum(row.seconds for row in kernels)
    waits = "" if straggler is not None else "; they run while they wait for other ranks, too"
    is_sharded = any("AllGather" in row.name or "ReduceScatter" in row.name for row in kernels)
    return Finding(
        code="communication-bound",
        title=f"Communication-bound: {share(part)} of a step nothing but collectives runs on the GPU",
        evidence=[
            *traced.kernel_lines(kernels),
            f"{duration(trace.exposed * trace.seconds)} of {duration(seconds)} beside nothing else, {traced.how(trace)}"
            + waits,
        ],
        advice=SHARD_LESS if is_sharded else EXCHANGE_LESS,
        lost_fraction=part * evidence.loop_share,
    )


def _stands(evidence: Evidence, *phases: str) -> float:
    """Return the seconds in which the training thread stands in collectives in these phases, waits included.

    DDP's own in backward are not among them: no Python waits there. Samples in hindsight cannot tell apart what has no
    name, so it is asked for together.
    """
    samples = evidence.sampled_seconds(*phases)
    called = sum(seconds for sample, seconds in samples.items() if sample.place.activity == COLLECTIVE)
    spent = evidence.named_seconds(*phases) + (evidence.between_steps if BETWEEN_STEPS in phases else 0.0)
    return spent * called / sum(samples.values()) if samples else 0.0


def _advice(row: CollectivesRow, own: float, layers: float, transfer: float) -> str:
    """Return what to do about the largest part.

    Args:
        own: seconds in calls of the program's own.
        layers: seconds in calls that layers make in the passes, as sharded ones do.
        transfer: seconds that gradients take after the last call for them.
    """
    if layers > max(own, transfer):
        return SHARD_LESS
    if own >= transfer or (row.calls >= MANY_CALLS and row.bytes < SMALL_CALL * row.calls):
        return (
            "Fewer, larger calls: DDP's default buckets (bucket_cap_mb), one flat buffer for gradients that the program"
            " averages itself; gather numbers and objects once every so many steps, as one tensor."
        )
    return EXCHANGE_LESS


SHARD_LESS = (
    "Shard no model that fits each rank (DDP sends gradients alone), or only as far as it needs: keep the weights"
    " between the passes (reshard_after_forward=False), shard larger units; more samples per rank and step."
)
EXCHANGE_LESS = (
    "Exchange less: average gradients once for several batches (no_sync), send them in 16 bits (a DDP communication"
    " hook), more samples per rank and step."
)


@rule("uneven-ranks", Family.WAITING)
def uneven_ranks(evidence: Evidence) -> Finding | None:
    """Find ranks that wait for each other in turn."""
    row = evidence.report.collectives
    if row is None or evidence.report.straggler is not None or row.steps < MIN_STEPS:
        return None
    if beyond_crowd(evidence, row.wait_seconds / row.period) < MIN_UNEVEN_SHARE:
        return None
    waits = [each for each in evidence.report.ranks if each.wait_seconds is not None]
    lines = [f"rank {each.rank} waits {duration(each.wait_seconds)} per step" for each in waits[:4]]
    part = row.wait_seconds / row.period
    place = _own_place(evidence.state.ranks[evidence.state.main.rank].sampled)
    lines += [f"what does not wait is mostly at {place}"] if place is not None else []
    return Finding(
        code="uneven-ranks",
        title=f"Uneven ranks: they wait for each other in turn, {share(part)} of step time",
        evidence=[f"mean of {row.steps} steps, by the times at which the ranks call their collectives", *lines],
        advice="Let each step take equally long on all ranks: batches of like length, and what is done now and then"
        " (collections, saving, logging, evaluation) at the same step on all of them.",
        cost=evidence.loop_part(row.wait_seconds * evidence.steps),
        lost_fraction=evidence.wall_part(row.wait_seconds * evidence.steps),
    )


def are_mostly(evidence: Evidence, activity: str) -> bool:
    """Return whether most of the time of every rank goes to this, but for backward, in which it waits for others."""
    places = [_own_place(stats.sampled) for stats in evidence.state.ranks.values()]
    return all(place is not None and place.activity == activity for place in places)


def _own_place(sampled: RankSamples) -> Place | None:
    return sampled.place(*({phase for phase, _ in sampled.rows} - {BACKWARD}))
