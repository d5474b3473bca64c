"""Interruptions: checkpoints, evaluations, logging, garbage collection, and the disk that they wait for. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.waiting import activity_share, input_bound, sampled_seconds
from monitor.model.report import Finding
from monitor.model.steps.pace import SINCE
from monitor.model.steps.sampled_calls import CHECKPOINT, EVAL, LOGGING
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.units import duration, flow, percent, share
from trainhooks.protocol.calls import COLLECTION

MIN_LOGGING_SHARE = 0.05  # of the time since the first step: logging should cost less than 5%
MIN_CHECKPOINT_SHARE = 0.10  # a crash costs more than checkpoints usually do; a tenth of the time is rarely intended
MIN_EVAL_SHARE = 0.30  # evaluation is wanted work; only a share near a third is reported
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
        MIN_CHECKPOINT_SHARE,
        f"Save less often{now}, to a faster disk, or asynchronously (torch.distributed.checkpoint.async_save); save"
        " what a restart needs, not files that can be recreated.",
    )


@rule(
    "eval-heavy",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("slow-steps", "slow-drift"), culprits=("eval",))),
)
def eval_heavy(evidence: Evidence) -> Finding | None:
    """Find evaluations that take much of the time."""
    now = evidence.setting_now("eval_steps", "val_check_interval")
    return _interruption(
        evidence,
        "eval-heavy",
        "Evaluation",
        (EVAL, "evaluation", "validation"),
        MIN_EVAL_SHARE,
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
        MIN_LOGGING_SHARE,
        f"Log less often{now}, keep metrics on the GPU until then (.item() waits for it), and write outside the loop.",
    )


def _interruption(
    evidence: Evidence, code: str, name: str, activities: tuple[str, ...], min_share: float, advice: str
) -> Finding | None:
    """Return the finding on an activity that takes at least `min_share` of the time since the first step.

    Args:
        activities: names of its phases and spans; the first one is also what stack samples show.
    """
    what = activities[0]
    sampled = sampled_seconds(evidence, what)
    wall = evidence.report.wall
    late = sum(wall.afterwards.get(name, 0.0) for name in activities)  # after the last step
    seconds = evidence.named_seconds(*activities) + sampled + late
    part = seconds / (wall.stepping + late) if wall.stepping else 0.0
    if not evidence.has_steps() or part < min_share:
        return None
    often = sampled or sum(span.name in activities for span in evidence.state.main.marks) >= MIN_TIMES
    often = often or any(row.name in activities and row.count >= MIN_TIMES for row in evidence.report.phases)
    if not often and evidence.wall_part(seconds) < min_share:
        return None
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
        severity="warning" if often else "info",  # what comes once cannot come less often
        title=f"{name}: {'about ' if sampled else ''}{share(part)} of the time {SINCE}",
        evidence=lines,
        advice=advice,
        lost_fraction=evidence.wall_part(seconds),
        once_fraction=evidence.wall_part(late),
    )


# Of the time since the first step. It is estimated: what is found below a tenth is told, and no warning.
MIN_COLLECTION_SHARE = 0.03
MIN_WARNING_COLLECTION_SHARE = 0.10


@rule(
    "garbage-collection",
    Family.WAITING,
    suppresses=(
        Suppress(("unaccounted-time", "slow-steps", "slow-drift", "gpu-starved", "launch-bound"), if_most=True),
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
    if part < MIN_COLLECTION_SHARE:
        return None
    lines = [f"about {duration(seconds)} in collections of all objects"]
    if found.full:
        lines[0] += f", {found.full:,} of them"
    if called:
        lines += evidence.unnamed_places()
    return Finding(
        code="garbage-collection",
        severity="warning" if part >= MIN_WARNING_COLLECTION_SHARE else "info",
        title=f"Garbage collection: about {share(part)} of the time {SINCE}",
        evidence=lines,
        advice=COLLECTED_BY_CALL if called else COLLECTED_BY_ITSELF,
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
