"""Wasted or fragmented work in batches: padding, long sequences, one sample or one text at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.diagnosis import hardware
from monitor.diagnosis.rule import COMPUTING, MIN_STEPS, Evidence, Family, Suppress, rule
from monitor.model.report import Finding
from monitor.model.state import Bin
from monitor.model.steps.growth import Slope, slope
from monitor.units import brief, duration, share
from trainhooks.protocol.vocabulary import REWARD_NAME

# Padding to the longest of a random batch wastes a third of many data sets; half is worth packing or grouping.
MIN_PADDING_SHARE = 0.35
PADDED_PHASES = ("forward", "backward", "training")

# Anything that the host does before a launch makes it late: findings that cost most of what late launches cost are
# their cause.
LATE_LAUNCHES = Suppress(("launch-bound", "small-batch"), if_most=True)


@rule("padding-waste", Family.MODEL)
def padding_waste(evidence: Evidence) -> Finding | None:
    """Find batches of which a large part is padding."""
    main = evidence.state.main
    if not evidence.is_often(main.padded_steps) or not main.padded_tokens:
        return None
    padding = main.padded_tokens - main.unpadded_tokens
    waste = padding / main.padded_tokens
    if waste < MIN_PADDING_SHARE or _is_of_outliers(evidence):
        return None
    rows = [row for name in PADDED_PHASES if (row := evidence.phase(name)) is not None]
    seconds = sum(row.recurring for row in rows)
    if evidence.host_only:  # when the GPU computed is unknown: all the time, at most
        seconds = evidence.report.wall.stepping
    lost = waste * evidence.wall_part(seconds)
    lines = [f"{padding:,.0f} of {main.padded_tokens:,.0f} computed tokens in {main.padded_steps:,} steps"]
    likely = least = None
    if rows and (known := _seconds_a_position(evidence)) is not None:
        least, likely, lost = (
            min(lost, evidence.wall_part(padding * max(0.0, rate))) for rate in (known.low, known.rate, known.high)
        )
        lines.append(f"longer batches take {brief(1000 * known.rate)} for 1,000 positions more")
    return Finding(
        code="padding-waste",
        title=f"Padding: {share(waste)} of each batch",
        evidence=lines,
        advice="Group sequences of similar length, pack them, or pad to the longest of a batch instead of a fixed"
        " length.",
        estimated=evidence.host_only,
        lost_fraction=lost if rows else None,
        likely_fraction=likely,
        least_fraction=least,
    )


def _seconds_a_position(evidence: Evidence) -> Slope | None:
    """Return what a step takes longer for each further position; None where it is unknown.

    A part of a step is the same however long its batch is: in a small model nearly all of it.
    """
    rows = [row for _, row in evidence.state.main.lengths.rows() if row.padded]
    if sum(row.steps for row in rows) < MIN_OUTLIER_STEPS or not _clocks_agree(evidence):
        return None
    return slope([(row.padded / row.steps, row.seconds / row.steps) for row in rows])


def _is_of_outliers(evidence: Evidence) -> bool:
    """Return whether a few long sequences cause the padding and all other batches are fine."""
    outlying = outlier_steps(evidence)
    return outlying is not None and outlying.others.tokens > (1 - MIN_PADDING_SHARE) * outlying.others.padded


MIN_GENERATE_CALLS = 32  # calls of generate(): a step that writes texts takes seconds, and a short run has few
MAX_SEQUENCES_PER_CALL = 1.5  # above, calls are batched to some extent
MIN_CALLS_PER_STEP = 4.0  # two or three may be different questions


@rule("sequential-generation", Family.MODEL, suppresses=("gpu-starved", LATE_LAUNCHES))
def sequential_generation(evidence: Evidence) -> Finding | None:
    """Find many calls of generate() per step, with one sequence each."""
    metrics, wall = evidence.report.metrics, evidence.report.wall
    calls, batch = metrics.get("generate_calls"), metrics.get("generate_batch")
    # Before a step's first forward with gradients, generation lies outside the step and is a span.
    seconds, around = evidence.named_seconds("generation"), wall.steps + wall.spans.get("generation", 0.0)
    if calls is None or batch is None or not around or not evidence.steps:
        return None
    total = (calls.mean or 0.0) * calls.count
    per_step, part = total / evidence.steps, seconds / around
    if total < MIN_GENERATE_CALLS or per_step < MIN_CALLS_PER_STEP:
        return None
    if (batch.mean or 0.0) > MAX_SEQUENCES_PER_CALL:
        return None
    return Finding(
        code="sequential-generation",
        title=f"One-by-one generation: {per_step:.1f} generate() calls per step, {share(part)} of step time",
        evidence=[f"{batch.mean:.2g} sequences per call, {duration(seconds / evidence.steps)} of generation per step"],
        advice="Generate the texts of a step in one call: left-padded prompts, or num_return_sequences=N.",
        cost=evidence.loop_part(seconds) * (1 - 1 / per_step),
        estimated=True,
        lost_fraction=None if evidence.host_only else evidence.wall_part(seconds) * (1 - 1 / per_step),
    )


MIN_OUTLIER_STEPS = 40  # steps with known lengths; 20% of fewer are too few
MIN_LENGTH_RATIO = 3.0  # times the typical length; most texts of mixed data are shorter
MAX_OUTLIER_STEPS_SHARE = 0.20  # of the steps; if more are long, the data is long
# Of the sequences, likewise; of random batches of eight, a third hold a long one where one in twenty is long.
MAX_OUTLIER_SHARE = 0.10
MIN_SECONDS_RATIO = 2.0  # times the seconds of the other steps: the length then takes the time
MAX_CLOCK_GAP = 0.25  # of a step, between a median step by the host's clock and by the GPU's


@dataclass(frozen=True, slots=True)
class Outliers:
    """Steps with long sequences, and all others."""

    few: Bin
    others: Bin


# Longer sequences are more work: slow steps in these phases have that cause.
@rule(
    "length-outliers",
    Family.MODEL,
    suppresses=(Suppress(("slow-steps", "slow-drift"), culprits=COMPUTING, if_info=True),),
)
def length_outliers(evidence: Evidence) -> Finding | None:
    """Find a few long sequences that take much of the time."""
    outlying = outlier_steps(evidence)
    if outlying is None or evidence.report.cycle is not None:
        return None  # a policy's answers are as long as it makes them
    few, others, lengths = outlying.few, outlying.others, evidence.state.main.lengths
    seconds, typical, steps = few.seconds / few.steps, others.seconds / others.steps, few.steps + others.steps
    limit = evidence.count_setting("max_length", "max_seq_length", "model_max_length", "block_size")
    now = f" ({limit[0]}={limit[1]} now)" if limit is not None else ""
    return Finding(
        code="length-outliers",
        title=f"Long sequences: {share(few.steps / steps)} of steps take"
        f" {share(few.seconds / (few.seconds + others.seconds))} of the time",
        evidence=[
            f"{few.steps} of {steps} steps: mean length {few.length / few.steps:,.0f}, max {lengths.longest:,.0f};"
            f" other steps: mean length {others.length / others.steps:,.0f}",
            f"mean {duration(seconds)} per long step, {duration(typical)} per other step",
        ],
        advice=f"Check the long sequences: drop broken items, truncate others{now}. Or batch by tokens, so that a long"
        " sequence shares its batch with few others.",
        lost_fraction=evidence.wall_part(few.seconds - few.steps * typical),
    )


def outlier_steps(evidence: Evidence) -> Outliers | None:
    """Return the steps whose longest sequence is far above the typical one, where they are few and take much time."""
    lengths = evidence.state.main.lengths
    typical = lengths.typical()
    if lengths.steps < MIN_OUTLIER_STEPS or typical is None or not _clocks_agree(evidence):
        return None
    few, others = Bin(), Bin()
    for length, row in lengths.rows():
        _add_bin(few if length >= MIN_LENGTH_RATIO * typical else others, row)
    if few.steps < 2 or not few.seconds or not others.seconds:  # what comes once is no habit
        return None
    if (
        few.steps > MAX_OUTLIER_STEPS_SHARE * lengths.steps
        and (_sequence_share(few, others) or 1.0) > MAX_OUTLIER_SHARE
    ):
        return None
    mean = others.seconds / others.steps
    return Outliers(few, others) if few.seconds / few.steps >= MIN_SECONDS_RATIO * mean else None


def _clocks_agree(evidence: Evidence) -> bool:
    """Return whether a host's step is as long as the GPU's, so that the host's times say what a batch takes."""
    if evidence.device is None:
        return True
    host = evidence.state.main.step_seconds.settled().quantiles.at(0.5)[0]
    phases = evidence.state.main.device.phases.values()
    device = sum(column.settled().quantiles.at(0.5)[0] for column in phases)
    return device > 0.0 and abs(host - device) <= MAX_CLOCK_GAP * device


def _sequence_share(few: Bin, others: Bin) -> float | None:
    """Estimate which share of all sequences is long: others in their batches are taken to be typical."""
    rows = [part.padded * part.steps / part.length for part in (few, others)]
    typical, long = others.tokens / rows[1] if rows[1] else 0.0, few.length / few.steps
    if not rows[0] or not typical or long <= typical:
        return None
    return max(0.0, (few.tokens - rows[0] * typical) / (long - typical)) / sum(rows)


def _add_bin(total: Bin, row: Bin) -> None:
    total.steps += row.steps
    total.seconds += row.seconds
    total.tokens += row.tokens
    total.padded += row.padded
    total.length += row.length


MIN_FORWARD_CALLS = 32  # of the model that were watched
MIN_LONG_CALLS = 8  # the same in a run of a few long steps: two of four calls are no chance
# Of the calls: half of them where each step repeats one. A tenth is a loop that checks its training now and then.
MIN_REPEATED_SHARE = 0.25
MIN_LOOKS_SHARE = 0.5  # of the steps, whose batch goes through the model again without gradients
TWO_FORWARDS = "two per backward on the same input"


@rule("duplicate-forward", Family.MODEL)
def duplicate_forward(evidence: Evidence) -> Finding | None:
    """Find forward passes repeated on the same input: before a backward of their own, or without gradients."""
    repeated, calls = evidence.facts.forwards.repeated, evidence.facts.forwards.calls
    if not evidence.has_steps() or calls < (MIN_FORWARD_CALLS if evidence.steps >= MIN_STEPS else MIN_LONG_CALLS):
        return None
    looks = 0 if learns_from_rewards(evidence) else evidence.facts.forwards.without_gradients
    is_looked_at = repeated < looks
    part = min(1.0, looks / calls) if is_looked_at else min(0.5, repeated / calls)
    if part < (MIN_LOOKS_SHARE if is_looked_at else MIN_REPEATED_SHARE):
        return None
    row = evidence.phase("forward")
    lines = [f"{repeated} of {calls} calls in training mode repeated the previous input without a backward"]
    if is_looked_at:
        lines = [f"{looks} calls without gradients on the input of the last of {calls} calls in training"]
    if row is not None:
        both = "" if is_looked_at else ", both calls together"
        lines.append(f"forward {duration(row.mean)} per step, {share(row.share)} of step time{both}")
    known = row is not None and not evidence.host_only
    return Finding(
        code="duplicate-forward",
        severity="" if known else "warning",
        title="Duplicate forward pass: "
        + ("each batch goes through the model again after training" if is_looked_at else TWO_FORWARDS),
        evidence=lines,
        advice="Reuse the first output: compute metrics from the same outputs as the loss. Run gradient-free code under"
        " torch.no_grad().",
        lost_fraction=min(0.5, evidence.wall_part(part * row.recurring)) if row is not None and known else None,
    )


def learns_from_rewards(evidence: Evidence) -> bool:
    """Return whether it is reinforcement learning, where a policy is compared with what it was before the update."""
    is_policy = evidence.report.throughput.collected.is_any
    return is_policy or any(REWARD_NAME.search(name) for name in evidence.report.metrics)


MIN_SINGLE_CALLS = 4.0  # per step, on one sample each; two or three may be different questions
MIN_SINGLE_STEPS_SHARE = 0.8  # of the steps consist of such calls
# Seconds of forward and backward per call, on a core. A longer call has so much work in one sample that batching gains
# little on a CPU; on a GPU the free memory decides.
MAX_CALL_SECONDS = 0.02
MIN_FREE_MEMORY = 0.4  # of the memory: room for twice the activations, whatever the weights take
MAX_SEQUENCE_LENGTH = 2048  # positions of one sequence: longer ones keep a GPU busy by themselves


@rule("sequential-batching", Family.MODEL, suppresses=("gpu-starved", LATE_LAUNCHES))
def sequential_batching(evidence: Evidence) -> Finding | None:
    """Find many calls of the model per step with one sample each, though more would fit."""
    main = evidence.state.main
    if not evidence.is_often(main.called_often) or main.called_singly < MIN_SINGLE_STEPS_SHARE * main.called_often:
        return None
    done = main.steps_ok + sum(main.skipped.values())
    samples = main.pace.samples / main.pace.steps if main.pace.steps else 0.0
    if main.called_often < MIN_SINGLE_STEPS_SHARE * done or samples < MIN_SINGLE_CALLS:
        return None
    seconds = hardware.computing_seconds(evidence)
    per_call = seconds / max(1, main.pace.samples)
    if not _has_room(evidence, per_call):
        return None
    lines = [f"{samples:.1f} calls per step on one sample each, in {main.called_singly} of {done} steps"]
    lines.append(f"forward and backward {duration(per_call)} per call")
    memory = hardware.model_memory(evidence)
    if memory is not None:
        lines.append(f"{share(1 - memory[0] / memory[1])} of {memory[2]} never used")
    return Finding(
        code="sequential-batching",
        title=f"Batch size 1: {samples:.1f} model calls per step",
        evidence=lines,
        advice=_batch_advice(evidence),
        estimated=True,
        lost_fraction=evidence.wall_part(seconds) * (1 - 1 / samples),
    )


def _has_room(evidence: Evidence, per_call: float) -> bool:
    """Return whether several samples at once would fit and would likely gain."""
    memory, pace = hardware.model_memory(evidence), evidence.state.main.pace
    if memory is not None and 1 - memory[0] / memory[1] < MIN_FREE_MEMORY:
        return False
    if pace.samples and pace.tokens / pace.samples >= MAX_SEQUENCE_LENGTH:
        return False
    if hardware.model_device(evidence) == "cuda":
        return memory is not None
    return per_call * hardware.scheduled_share(evidence) < MAX_CALL_SECONDS


def _batch_advice(evidence: Evidence) -> str:
    batch = evidence.setting("per_device_train_batch_size", "batch_size")
    accumulation = evidence.count_setting("gradient_accumulation_steps", "accumulate_grad_batches")
    if batch is None or accumulation is None or accumulation[1] < 2:
        return "Collate the samples with padding and call the model once for all of them."
    half = max(1, accumulation[1] // 2)
    return (
        f"Set {batch[0]}={batch[1]} → 2 and {accumulation[0]}={accumulation[1]} → {half}, and so on while memory lasts"
        " and samples/s grow: the training result stays the same."
    )
