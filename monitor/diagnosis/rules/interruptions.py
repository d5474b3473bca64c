"""Interruptions: checkpoints, evaluations, logging, garbage collection, and the disk that they wait for. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.judge import WARNING_COST
from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.batching import learns_from_rewards
from monitor.diagnosis.rules.communication import are_mostly, uneven_ranks
from monitor.diagnosis.rules.waiting import (
    MAX_BURST_MEDIAN,
    MIN_ACTIVITY_SHARE,
    MIN_SAMPLED_LOOP_SHARE,
    activity_share,
    input_bound,
    sampled_seconds,
)
from monitor.model.report import Finding
from monitor.model.steps.pace import SINCE
from monitor.model.steps.sampled_calls import CHECKPOINT, EVAL, LOGGING, kind_of
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.step_blocks import OTHER
from monitor.units import duration, flow, percent, share
from trainhooks.protocol.calls import COLLECTION, COLLECTIVE, FOR_WORKERS, HTTP, LOCK, SLEEP, SUBPROCESS, THREAD

MIN_TIMES = 3  # what comes once or twice in a run, as its last checkpoint, has a large share of a short one only


@rule(
    "checkpoint-stall",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("slow-steps", "slow-drift"), culprits=("checkpoint",))),
    idle_time=True,
)
def checkpoint_stall(evidence: Evidence) -> Finding | None:
    """Find checkpoints that take much of the time."""
    now = evidence.setting_now("save_steps")
    return _interruption(
        evidence,
        "checkpoint-stall",
        "Checkpoints",
        (CHECKPOINT, "save", "save_checkpoint"),
        f"Save less often{now}, to a faster disk, or asynchronously (torch.distributed.checkpoint.async_save); save"
        " what a restart needs, not files that can be recreated.",
    )


@rule(
    "eval-heavy",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("slow-steps", "slow-drift"), culprits=("eval",))),
    only_bound=True,  # it is wanted work, of which a part stays
)
def eval_heavy(evidence: Evidence) -> Finding | None:
    """Find evaluations that take much of the time."""
    now = evidence.setting_now("eval_steps", "val_check_interval")
    return _interruption(
        evidence,
        "eval-heavy",
        "Evaluation",
        (EVAL, "evaluation", "validation"),
        f"Evaluate less often{now}, on a part of the set, or with a larger batch than in training (no gradients are"
        " kept).",
    )


@rule(
    "logging-overhead",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("slow-steps", "slow-drift"), culprits=("logging",))),
    idle_time=True,
)
def logging_overhead(evidence: Evidence) -> Finding | None:
    """Find logging that takes much of the time."""
    now = evidence.setting_now("logging_steps", "log_every_n_steps", "log_every", "log_interval")
    return _interruption(
        evidence,
        "logging-overhead",
        "Logging",
        (LOGGING, "log"),
        f"Log less often{now}, keep metrics on the GPU until then (.item() waits for it), and write outside the loop.",
    )


def _interruption(evidence: Evidence, code: str, name: str, activities: tuple[str, ...], advice: str) -> Finding | None:
    """Return the finding on an activity that takes a part of the time since the first step.

    Args:
        activities: names of its phases and spans; the first one is also what stack samples show.
    """
    what = activities[0]
    sampled = sampled_seconds(evidence, what)
    wall = evidence.report.wall
    late = sum(wall.afterwards.get(name, 0.0) for name in activities)  # after the last step
    seconds = evidence.named_seconds(*activities) + sampled + late
    part = seconds / (wall.stepping + late) if wall.stepping else 0.0
    if not evidence.has_steps() or not seconds:
        return None
    often = sampled or sum(span.name in activities for span in evidence.state.main.marks) >= MIN_TIMES
    often = often or any(row.name in activities and row.count >= MIN_TIMES for row in evidence.report.phases)
    if not often and evidence.wall_part(seconds) < WARNING_COST:
        return None  # no habit: it has to be a part of the run that is worth a word
    if sampled:
        lines = [f"about {duration(seconds)} in {what}, by stack samples"]
        for phases in (UNNAMED, ("forward",)):
            if activity_share(evidence.sampled_seconds(*phases), what):
                lines += evidence.unnamed_places() if phases == UNNAMED else evidence.places(*phases)
    else:
        lines = [f"{duration(seconds)} in {what}, {duration(wall.steps)} in steps"]
    lines += [f"{duration(late)} of it after the last step"] if late else []
    return Finding(
        code=code,
        title=f"{name}: {'about ' if sampled else ''}{share(part)} of the time {SINCE}",
        evidence=lines,
        advice=advice,
        cost=part if often else min(part, evidence.wall_part(seconds)),
        estimated=bool(sampled),
        certain=bool(often),  # what comes once cannot come less often
        lost_fraction=evidence.wall_part(seconds),
        once_fraction=evidence.wall_part(late),
    )


# What waits has other findings, and time that nothing computes in is no work.
WAITS = FOR_WORKERS | {COLLECTIVE, HTTP, LOCK, SLEEP, SUBPROCESS, THREAD}


@rule(
    "work-between-steps",
    Family.WAITING,
    suppresses=(
        "gpu-starved",
        Suppress(("unaccounted-time",), if_most=True),
        Suppress(("slow-steps", "slow-drift"), culprits=(OTHER,)),
    ),
    only_bound=True,  # it is wanted work, of which a part stays
)
def work_between_steps(evidence: Evidence) -> Finding | None:
    """Find a function of the program that works between steps for much of the time: it samples, generates, renders."""
    if not evidence.has_steps() or evidence.host_only:
        return None
    if evidence.report.cycle is not None or learns_from_rewards(evidence):
        return None  # what a policy learns from is made between its steps
    samples = evidence.sampled_seconds(BETWEEN_STEPS)
    known = evidence.state.main.samples.looks
    loops = {(place.file, place.function) for phase, place in known if phase not in UNNAMED}
    work: dict[str, float] = {}
    for (_, place), spent in samples.items():
        if kind_of(place) is None and place.activity not in WAITS:
            runs_steps = (place.file, place.function) in loops or not place.function.isidentifier()
            where = str(place.users) if runs_steps else f"{place.function}()"
            work[where] = work.get(where, 0.0) + spent
    name, spent = max(work.items(), key=lambda row: row[1], default=("", 0.0))
    part = spent / sum(samples.values()) if samples else 0.0
    seconds = part * (evidence.between_steps + _in_some_steps(evidence))
    if part < MIN_ACTIVITY_SHARE or evidence.loop_part(seconds) < MIN_SAMPLED_LOOP_SHARE:
        return None
    return Finding(
        code="work-between-steps",
        title=f"Between steps: about {share(evidence.loop_part(seconds))} of the time {SINCE} in {name}",
        evidence=[
            f"about {duration(seconds)} there, by stack samples; {duration(evidence.report.wall.steps)} in steps",
            *evidence.places(BETWEEN_STEPS),
        ],
        advice="Do it less often, on fewer or smaller inputs, or in another process on saved weights.",
        cost=evidence.loop_part(seconds),
        estimated=True,
        lost_fraction=evidence.wall_part(seconds),
        culprit=BETWEEN_STEPS,
    )


def _in_some_steps(evidence: Evidence) -> float:
    """Return the seconds in no phase that some steps have and most do not.

    A loop without a loader has no step open between two steps, and what it does there counts as the next one's. What
    each step has may be the training itself: a loss, layers called as functions.
    """
    row = evidence.phase(OTHER)
    if row is None or not row.count or row.p50 >= MAX_BURST_MEDIAN * row.recurring / row.count:
        return 0.0
    return max(0.0, row.recurring - row.p50 * row.count)


@rule(
    "garbage-collection",
    Family.WAITING,
    suppresses=(
        Suppress(("unaccounted-time", "slow-steps", "slow-drift", "gpu-starved", "launch-bound"), if_most=True),
        Suppress(("uneven-ranks",), if_most=True),
    ),
)
def garbage_collection(evidence: Evidence) -> Finding | None:
    """Find collections of all Python objects that take much of the time."""
    if not evidence.has_steps() or evidence.host_only:
        return None
    found = evidence.facts.collections
    called = sampled_seconds(evidence, COLLECTION)
    seconds = max(called, found.seconds)
    # A GPU that has work queued does not wait for a collection.
    part = min(1.0 if evidence.device is None else evidence.max_idle or 0.0, evidence.loop_part(seconds))
    lines = [f"about {duration(seconds)} in collections of all objects"]
    if found.full:
        lines[0] += f", {found.full:,} of them"
    if called:
        lines += evidence.unnamed_places()
    uneven = uneven_ranks(evidence)
    if uneven is not None and are_mostly(evidence, COLLECTION):
        lines.append(f"the ranks collect at different steps, and wait for each other: {uneven.evidence[1]}")
        part = min(1.0, part + (uneven.cost or 0.0))
    return Finding(
        code="garbage-collection",
        title=f"Garbage collection: about {share(part)} of the time {SINCE}",
        evidence=lines,
        advice=COLLECTED_BY_CALL if called else COLLECTED_BY_ITSELF,
        estimated=True,
        lost_fraction=part * evidence.loop_share,
    )


COLLECTED_BY_CALL = (
    "Remove gc.collect() from the loop, or call it once an epoch: tensors are freed as soon as nothing refers to them."
)
COLLECTED_BY_ITSELF = (
    "Call gc.freeze() once all data and models are loaded: later collections pass over them. Keep data in arrays or"
    " tensors, not in millions of Python objects."
)


MIN_DISK_READINGS = 30  # of the host, one a second
# Percent of the time in which some task waited for I/O; a busy disk that keeps up is below ten.
MIN_PRESSURE_PERCENT = 40.0
MIN_DISK_RATE = 4.0  # MiB per second that the training reads and writes: it is not some other program that waits


@rule("disk-slow", Family.HOST, idle_time=True)
def disk_slow(evidence: Evidence) -> Finding | None:
    """Find data or checkpoints that wait for a disk which the training itself keeps busy."""
    cause = input_bound(evidence) or checkpoint_stall(evidence)
    readings = [row for row in evidence.state.host if row.pressure_io is not None]
    if cause is None or len(readings) < MIN_DISK_READINGS:
        return None
    waited = median(row.pressure_io or 0.0 for row in readings)
    read = median(row.tree_read or 0.0 for row in readings)
    written = median(row.tree_write or 0.0 for row in readings)
    if waited < MIN_PRESSURE_PERCENT or read + written < MIN_DISK_RATE * 2**20:
        return None
    return Finding(
        code="disk-slow",
        severity="info",  # the cause of a finding that is there already, and no loss beside it
        title=f"Slow disk: tasks wait for I/O {percent(waited)} of the time",
        evidence=[
            f"training reads {flow(read)} and writes {flow(written)} (medians)",
            f"see {cause.code}: {cause.title}",
        ],
        advice="Copy the data to a local SSD first; pack small files together; write checkpoints to a local disk and"
        " copy them later.",
    )
