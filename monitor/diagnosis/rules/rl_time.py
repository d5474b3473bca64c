"""Where the time of reinforcement learning goes: environments, generation, a reference, new weights. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.model.report import Finding, PhaseRow
from monitor.model.steps.pace import SINCE
from monitor.step_blocks import OTHER
from monitor.units import duration, plural, share
from trainhooks.protocol.vocabulary import (
    DECODE_STEPS,
    ENV_CALLS,
    ENV_SECONDS,
    ENV_STEPS,
    OWN_LOOP,
    TAIL_STEPS,
    UNCACHED_CALLS,
)


def metric_total(evidence: Evidence, name: str) -> float:
    """Return the sum of a metric over the run; 0 where there is none."""
    row = evidence.report.metrics.get(name)
    return (row.mean or 0.0) * row.count if row is not None else 0.0


MIN_ENV_SHARE = (
    0.5  # of the time since the first step: below, learning takes as long, and twice as fast gains a quarter
)
# Handing an action to another process and its observation back takes 0.2 to 0.6 ms an environment, by AsyncVectorEnv on
# an environment that does next to nothing. Steps that are not longer than that gain nothing in processes of their own.
MIN_ENV_STEP_SECONDS = 0.001
HANDING_SECONDS = (0.0, 0.0004)  # for each environment: hidden behind the others' waits, or as above
MIN_WAITING_SHARE = 0.5  # of env.step: else most of it is computed, and cores bound it
MIN_READINGS = 5  # of the host, one a second: the first ones are the start's
MAX_HELD_UP = 0.95  # of the time that its threads could run; beyond, what they would use is unknown
MAX_STEP_CORES = 1.5  # busy during env.step, on average: with more, it works in parallel already


@dataclass(frozen=True, slots=True)
class EnvTime:
    """The time in steps of environments, by the host's clock, one-offs left out."""

    seconds: float
    acting: float  # the rest of the rollouts: calls of the model, buffers, resets
    each: float  # seconds per step of one environment
    per_call: float  # environments that a call steps


@rule("env-bound", Family.WAITING, suppresses=("gpu-starved",), idle_time=True)
def env_bound(evidence: Evidence) -> Finding | None:
    """Find environments that take most of the time, stepped one after the other in one process."""
    time = env_time(evidence)
    if time is None or not evidence.has_steps() or evidence.is_hidden_by_gpu:
        return None
    part, lost = evidence.loop_part(time.seconds), evidence.wall_part(time.seconds)
    if part < MIN_ENV_SHARE or time.each < MIN_ENV_STEP_SECONDS:
        return None
    if _steps_in_parallel(evidence, part):
        return None
    cores, waiting = evidence.facts.cpus, _waiting_share(evidence, part)
    stepped = plural(round(time.per_call), "environment", "environments")
    lines = [
        f"env.step {share(part)} of the time {SINCE}, the rest of the rollout {share(evidence.loop_part(time.acting))}",
        f"{duration(time.each)} per step of one environment, {stepped} per call, one process",
    ]
    lines += [f"{cores} usable CPU cores"] if cores is not None else []
    if waiting >= MIN_WAITING_SHARE:
        lines += [f"{share(waiting)} of it or more waits, and needs no core"]
        return _env_waits(time, part, lost, lines)
    return Finding(
        code="env-bound",
        title=f"Environment-bound: {share(part)} of the time {SINCE} in env.step, one after the other",
        evidence=lines,
        advice=_env_advice(cores),
        # On n cores the steps take an n-th at best.
        cost=part,
        certain=cores != 1,
        estimated=True,
        lost_fraction=lost * (1 - 1 / cores) if cores is not None and cores > 1 else None,
        culprit="rollout",
    )


def _waiting_share(evidence: Evidence, part: float) -> float:
    """Return the share of env.step in which it computes nothing, at least: all that computes may do so meanwhile.

    Args:
        part: of the time in env.step.
    """
    used, late = evidence.host_values("tree_cpu"), evidence.host_values("tree_waiting")
    if len(used) < MIN_READINGS:
        return 0.0
    held_up = min(MAX_HELD_UP, median(late)) if late else 0.0  # what waits for a core would compute
    return max(0.0, 1.0 - median(used) / 100.0 / (1.0 - held_up) / part)


def _env_waits(time: EnvTime, part: float, lost: float, lines: list[str]) -> Finding:
    """Return the finding on environments that wait: at once, they take as long as one, whatever the cores."""
    most, likely = (
        lost * max(0.0, 1.0 - 1.0 / time.per_call - handing / time.each) if time.per_call >= 2 else None
        for handing in HANDING_SECONDS
    )
    return Finding(
        code="env-bound",
        severity="warning",
        title=f"Environment-bound: {share(part)} of the time {SINCE} in env.step, which waits, one after the other",
        evidence=lines if most is not None else [*lines, "the gain grows with the environments that wait at once"],
        advice="Step all environments at once, however few the cores: gymnasium's AsyncVectorEnv, Stable-Baselines3's"
        " SubprocVecEnv, or a thread for each. Where there is one, collect from several.",
        lost_fraction=most,
        likely_fraction=likely,
        culprit="rollout",
    )


def _env_advice(cores: int | None) -> str:
    if cores == 1:
        return "Make a step cheaper: profile env.step. There is no second core to step environments on."
    many = f"up to {cores}" if cores is not None else "several"
    return (
        f"Step {many} environments at once, each in a process of its own: gymnasium's AsyncVectorEnv,"
        " Stable-Baselines3's SubprocVecEnv. Or make a step cheaper: profile env.step."
    )


def env_time(evidence: Evidence) -> EnvTime | None:
    """Return the time in steps of environments; None where there are none, or it is unknown."""
    rows = evidence.report.host_phases or evidence.report.phases
    row: PhaseRow | None = next((row for row in rows if row.name == "rollout"), None)
    seconds, steps, calls = (metric_total(evidence, name) for name in (ENV_SECONDS, ENV_STEPS, ENV_CALLS))
    whole = row.mean * row.count if row is not None else 0.0
    if row is None or not (seconds and steps and calls and whole):
        return None
    part = min(1.0, seconds / whole)
    return EnvTime(part * row.recurring, (1 - part) * row.recurring, seconds / steps, steps / calls)


def _steps_in_parallel(evidence: Evidence, part: float) -> bool:
    """Return whether the environments have processes, a GPU or threads of their own."""
    environments = evidence.facts.environments
    if environments.on_host is False or (environments.processes or 0) > 1:
        return True
    used, cores = evidence.host_values("tree_cpu"), evidence.report.host.cores
    # All else in the loop may keep all cores busy.
    return bool(used and cores) and median(used) / 100.0 > part * MAX_STEP_CORES + (1 - part) * (cores or 0)


MIN_GENERATION_SHARE = 0.20  # of the time since the first step: a third of less is 6%, and changes no loop
MIN_TAIL_SHARE = 0.30  # of the decoding steps: lengths spread evenly from nothing to the longest have 25%
MIN_NATURAL_RATIO = 2 / 3  # of the places that answers of random lengths use: with fewer, some are outliers
MIN_TAIL_STEPS = 10  # logged figures: one long answer in a few batches is no habit
FEW_AT_WORK = 0.25  # of the sequences: the rest of a batch's places are empty


# The answers that are padded to the longest are what the policy then trains on.
@rule("generation-tail", Family.MODEL, suppresses=("gpu-starved", "padding-waste"))
def generation_tail(evidence: Evidence) -> Finding | None:
    """Find batches of answers of which a few last longest while most of the batch is empty."""
    tail = _tail_share(evidence)
    seconds = evidence.named_seconds("generation")
    part = evidence.loop_part(seconds)
    if tail is None or tail[0] < MIN_TAIL_SHARE or part < MIN_GENERATION_SHARE or not evidence.has_steps():
        return None
    least, is_measured, line = tail
    about = "" if is_measured else "at least "
    return Finding(
        code="generation-tail",
        title=f"Generation tail: {about}{share(least)} of decoding for under a quarter of the sequences",
        evidence=[f"generation {share(part)} of the time {SINCE}", line],
        advice="Let others take the places of finished sequences: vLLM or continuous batching, on more prompts at once"
        " than fit. Limit the length of answers, or start the next batch before the last ones end.",
        cost=part * least,
        certain=not _is_natural(evidence),
        lost_fraction=evidence.wall_part(seconds) * least if is_measured and not evidence.host_only else None,
        culprit="generation",
    )


def _is_natural(evidence: Evidence) -> bool:
    """Return whether answers use about as many places of their batches as such with a constant chance to end do.

    Of n such answers the longest has 1 + 1/2 + ... + 1/n times the mean length.
    """
    answers, calls = metric_total(evidence, "completions"), metric_total(evidence, "generate_calls")
    tokens, steps = metric_total(evidence, "new_tokens"), metric_total(evidence, DECODE_STEPS)
    if not (answers and calls and tokens and steps):
        return False
    at_once = answers / calls
    longest = sum(1 / rank for rank in range(1, round(at_once) + 1))
    return tokens / (steps * at_once) >= MIN_NATURAL_RATIO / longest


def _tail_share(evidence: Evidence) -> tuple[float, bool, str] | None:
    """Return the share of decoding in which under a quarter of the sequences still decode, and how it is known.

    A quarter of the sequences or more decode at most as long as four times the mean length, so the rest of the longest
    one's time is a tail, whatever the lengths are.
    """
    metrics = evidence.report.metrics
    steps = metrics.get(DECODE_STEPS)
    decoded = metric_total(evidence, DECODE_STEPS)
    if steps is not None and decoded:
        if steps.count < MIN_TAIL_STEPS:
            return None
        few = metric_total(evidence, TAIL_STEPS)
        return few / decoded, True, f"{few:,.0f} of {decoded:,.0f} decoding steps, by the lengths of all answers"
    mean, longest = metrics.get("completions/mean_length"), metrics.get("completions/max_length")
    if mean is None or longest is None or min(mean.count, longest.count) < MIN_TAIL_STEPS or not longest.mean:
        return None
    line = f"lengths: mean {mean.mean or 0.0:,.0f}, longest {longest.mean:,.0f} on average (logged)"
    return 1 - (mean.mean or 0.0) / FEW_AT_WORK / longest.mean, False, line


MIN_NEW_TOKENS = 8  # per answer: without a cache the prompt is computed as often
MIN_UNCACHED_SHARE = 0.5  # of the calls of generate()
MIN_UNCACHED_CALLS = 2  # a single call may be a test of the model
MIN_LONG_GENERATION = 10.0  # seconds: calls this long need no number of steps to be worth a word


@rule("no-kv-cache", Family.MODEL)
def no_kv_cache(evidence: Evidence) -> Finding | None:
    """Find generation that computes all tokens so far again for each new one."""
    calls, uncached = metric_total(evidence, "generate_calls"), metric_total(evidence, UNCACHED_CALLS)
    answers, tokens = metric_total(evidence, "completions"), metric_total(evidence, "new_tokens")
    if not calls or not answers or uncached < MIN_UNCACHED_CALLS or uncached < MIN_UNCACHED_SHARE * calls:
        return None
    generating = evidence.named_seconds("generation")
    part = evidence.loop_part(generating)
    if tokens / answers < MIN_NEW_TOKENS or part < MIN_GENERATION_SHARE:
        return None
    if not evidence.has_steps() and generating < MIN_LONG_GENERATION:
        return None
    place = evidence.facts.generate.set_by
    is_own = place == OWN_LOOP
    where = f"use_cache=False in {place}" if place is not None else "use_cache=False"
    return Finding(
        code="no-kv-cache",
        severity="info" if is_own else "warning",  # whether a cache is worth its code depends on model and length
        title=f"No KV cache: each new token computes all before it again; generation {share(part)} of the time {SINCE}",
        evidence=[
            f"{uncached:,.0f} of {calls:,.0f} times {place} gives the model all tokens so far for each new one"
            if is_own
            else f"{uncached:,.0f} of {calls:,.0f} calls of generate() without a cache: {where}",
            f"{tokens / answers:,.0f} new tokens per sequence; gain unknown: no call with a cache to compare",
        ],
        advice="Keep the keys and values of earlier tokens, or the state, and give the model the newest token alone."
        if is_own
        else "Call generate() with use_cache=True; the model's other calls may stay without.",
        culprit="generation",
    )


MIN_COPY_CALLS = 8  # of the copy, that were watched
MIN_AGAIN_SHARE = 0.3  # of its calls: in two passes over each batch, half of them
MAX_MIXED_SHARE = 0.1  # likewise, with new rows and known ones: samples from a replay buffer
MIN_ROUNDS = 2  # times that new rows followed: a fixed data set repeats whole, in its next epoch


@rule("reference-recomputed", Family.MODEL, suppresses=(Suppress(("unaccounted-time",), if_most=True),))
def reference_recomputed(evidence: Evidence) -> Finding | None:
    """Find a copy of the trained model, its weights unchanged, that is called on the same inputs again."""
    copy = evidence.facts.model_copy
    calls, again, watched = copy.calls, copy.repeated, copy.watched_seconds
    if calls < MIN_COPY_CALLS or again < MIN_AGAIN_SHARE * calls or copy.mixed > MAX_MIXED_SHARE * calls:
        return None
    part = min(1.0, copy.repeated_seconds / watched) if watched and not evidence.host_only else None
    if copy.rounds < MIN_ROUNDS or not evidence.has_steps():
        return None
    cost = "" if part is None else f": {share(part)} of the time {SINCE}"
    return Finding(
        code="reference-recomputed",
        title=f"Reference computed again on the same inputs{cost}",
        evidence=[
            f"{again:,} of {calls:,} calls of a copy of the trained model: on inputs that it was given before, with"
            " updates of the trained model in between and none of its own"
        ],
        advice="Compute the reference's log-probabilities once for each batch of answers, before the first update, and"
        " keep them beside the answers.",
        lost_fraction=None if part is None else part * evidence.loop_share,
        culprit=OTHER,
    )


MIN_SYNCS = 3  # the first one sets up connections


@rule("weight-sync-heavy", Family.WAITING, suppresses=("gpu-starved",))
def weight_sync_heavy(evidence: Evidence) -> Finding | None:
    """Find much time in handing new weights to whoever generates."""
    seconds = evidence.named_seconds("weight_sync")
    part = evidence.loop_part(seconds)
    if not seconds or not evidence.has_steps() or evidence.is_hidden_by_gpu:
        return None
    row = evidence.phase("weight_sync")
    outside = sum(span.name == "weight_sync" for span in evidence.state.main.marks)  # before a step's first forward
    if (row.count if row is not None else 0) + outside < MIN_SYNCS:
        return None
    lines = [f"{duration(seconds)} in weight_sync, {duration(seconds / evidence.steps)} per step"]
    return Finding(
        code="weight-sync-heavy",
        cost=part,
        title=f"Weight synchronization: {share(part)} of the time {SINCE}",
        evidence=[*lines, *evidence.places("weight_sync")],
        advice="Synchronize less often (more training per batch of answers), in few large messages over NCCL or shared"
        " memory, or only what changes: LoRA adapters.",
        lost_fraction=None if evidence.host_only else evidence.wall_part(seconds),
        culprit="weight_sync",
    )
