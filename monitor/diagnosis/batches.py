"""Work that is done for nothing, or in portions that are too small: padding, one text at a time. Pure."""

from __future__ import annotations

from monitor.diagnosis import outliers
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import duration, share

ENOUGH = 20  # steps
ENOUGH_GENERATED = 32  # calls of generate(): a step that writes texts takes seconds, and a short run has few
# Padding to the longest of a random batch wastes a third of many data sets; half is worth packing or grouping.
PADDING_WORTH = 0.35
PADDING_GRAVE = 0.50
COMPUTED = ("forward", "backward", "training")  # the phases in which padding is computed
ONE_BY_ONE = 1.5  # sequences a call; above it somebody has begun to batch
MANY_CALLS = 4.0  # a step; two or three may be different questions
GENERATION_WORTH = 0.30  # of step time


def padding_waste(evidence: Evidence) -> Finding | None:
    """A large part of what is computed is filling."""
    main = evidence.state.main
    if main.padded_steps < ENOUGH or not main.padded_tokens:
        return None
    filling = main.padded_tokens - main.unpadded_tokens
    waste = filling / main.padded_tokens
    computed = [row for name in COMPUTED if (row := evidence.phase(name)) is not None]
    if waste < PADDING_WORTH or _of_outliers(evidence):
        return None
    seconds = sum(row.mean * row.count for row in computed)
    if evidence.host_only:  # when the device computed is not known: all the time, at most
        seconds = evidence.report.wall.stepping
    lost = waste * evidence.of_wall(seconds)
    return Finding(
        "padding-waste",
        "warning" if waste < PADDING_GRAVE or lost < PADDING_GRAVE / 2 else "critical",
        f"{share(waste)} of each batch is padding",
        [f"{filling:,.0f} of {main.padded_tokens:,.0f} computed tokens are padding, in {main.padded_steps:,} steps"],
        "Group sequences of like length, pack them, or pad to the longest of a batch and not to a fixed length.",
        lost if computed else None,
    )


def _of_outliers(evidence: Evidence) -> bool:
    """Whether it is a few long sequences that fill up their batches, and the others are as they should be."""
    found = outliers.outliers(evidence)
    return found is not None and found.others.tokens > (1 - PADDING_WORTH) * found.others.padded


def sequential_generation(evidence: Evidence) -> Finding | None:
    """generate() is called many times a step, with one sequence each."""
    metrics = evidence.report.metrics
    calls = metrics.get("generate_calls")
    batch = metrics.get("generate_batch")
    wall = evidence.report.wall
    # Before a step's first forward with gradients generating lies outside of it, and is a span.
    seconds, around = evidence.named("generation"), wall.steps + wall.spans.get("generation", 0.0)
    if calls is None or batch is None or not around or not evidence.steps:
        return None
    if (calls.mean or 0.0) * calls.count < ENOUGH_GENERATED:
        return None
    a_step, part = (calls.mean or 0.0) * calls.count / evidence.steps, seconds / around
    if a_step < MANY_CALLS or (batch.mean or 0.0) > ONE_BY_ONE or part < GENERATION_WORTH:
        return None
    most = None if evidence.host_only else evidence.of_wall(seconds) * (1 - 1 / a_step)
    return Finding(
        "sequential-generation",
        "warning",
        f"Text is generated one by one: {a_step:.1f} calls of generate() a step, {share(part)} of the steps' time",
        [f"{batch.mean:.2g} sequences a call, {duration(seconds / evidence.steps)} of generation a step"],
        "Generate the texts of a step in one call: prompts padded on the left, or num_return_sequences=N.",
        most,
    )
