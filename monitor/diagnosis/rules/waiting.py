"""Time in which nothing is computed: waits for data, checkpoints, evaluation, logging, start-up, other ranks. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import crowded
from monitor.model import operations
from monitor.model.operations import kind_of
from monitor.model.pace import SINCE
from monitor.model.report import Finding, Straggler
from monitor.model.stack_samples import Place
from monitor.model.unnamed_time import UNNAMED
from monitor.step_columns import OTHER
from monitor.units import duration, flow, percent, share
from trainhooks.stack_activities import COLLECTION, COMPUTED

# Time in no phase, and what stack samples show in it.

MIN_ACTIVITY_SHARE = 0.5  # of the stack samples: a part that is sampled less often does not name the whole
# Of the time since the first step. Samples are taken when the interpreter lets go, and writing lets go more often than
# computing does: what they show is no exact share, and a small one proves little.
MIN_SAMPLED_LOOP_SHARE = 0.20
MIN_NAMED_SHARE = 0.02  # of step time: a program that names one small part has not named the rest


def has_phases(evidence: Evidence) -> bool:
    """Return whether time in no phase means anything. With a backward, torch's own calls are timed, however short."""
    rows = evidence.report.phases
    return any(row.name == "backward" or (row.name != OTHER and row.share > MIN_NAMED_SHARE) for row in rows)


def unnamed_in_steps(evidence: Evidence) -> float:
    """Return the seconds in steps and in no phase, where phases are known, as far as they are a habit."""
    row = evidence.phase(OTHER)
    return row.habit if row is not None and has_phases(evidence) else 0.0


def _without_computation(evidence: Evidence, seconds: float) -> float:
    """Return the seconds in steps and in no phase, without those in which the training itself is computed.

    A loss, a policy's distribution, the clipping of gradients: they are no overhead.
    """
    samples = evidence.sampled_seconds(OTHER)
    computed = sum(part for place, part in samples.items() if place.activity in COMPUTED)
    return seconds * (1 - computed / sum(samples.values())) if computed else seconds


def unnamed_seconds(evidence: Evidence) -> float:
    return unnamed_in_steps(evidence) + evidence.between


def sampled_seconds(evidence: Evidence, what: str) -> float:
    """Return the seconds that stack samples show in this activity while it was in no phase; 0 where they are few.

    Where only the host's clock times a GPU's steps nothing counts: a host that prints a loss waits for the GPU there.
    """
    if evidence.host_only:
        return 0.0
    seconds = unnamed_seconds(evidence) * _activity_share(evidence.sampled_seconds(*UNNAMED), what)
    if has_phases(evidence):  # forward is what lies between the data and backward, printing included
        seconds += evidence.named("forward") * _activity_share(evidence.sampled_seconds("forward"), what)
    return seconds if evidence.of_loop(seconds) >= MIN_SAMPLED_LOOP_SHARE else 0.0


def sampled_activity(evidence: Evidence) -> tuple[str, float] | None:
    """Return what most of the time in no phase is by the stack samples, and its seconds."""
    samples = {} if evidence.host_only else evidence.sampled_seconds(*UNNAMED)
    for what in sorted({name for place in samples if (name := kind_of(place)) is not None}):
        seconds = unnamed_seconds(evidence) * _activity_share(samples, what)
        if seconds and evidence.of_loop(seconds) >= MIN_SAMPLED_LOOP_SHARE:
            return what, seconds
    return None


def _activity_share(samples: dict[Place, float], what: str) -> float:
    total = sum(samples.values())
    part = sum(seconds for place, seconds in samples.items() if kind_of(place) == what) / total if total else 0.0
    return part if part >= MIN_ACTIVITY_SHARE else 0.0


# A perfect loader would gain this share of the wall time: 1.18x at 0.15, which is worth changing an argument for.
MIN_INPUT_SHARE = 0.15
MIN_CRITICAL_INPUT_SHARE = 0.30
# Seconds that a batch of anything takes: collated in the process itself, or handed over by a worker through a queue and
# shared memory. Waits as short as that are those of a small step, not of a slow loader.
FETCH_SECONDS = 0.0005
HANDOVER_SECONDS = 0.002
MIN_NEW_ITERATORS = 0.8  # of the steps, of a loader with several batches
MAX_BURST_MEDIAN = 0.5  # of the mean wait: where the median is less, waits come in bursts


@rule(
    "input-bound",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("slow-steps", "slow-drift"), culprits=("data",), if_info=True)),
    idle_time=True,
)
def input_bound(evidence: Evidence) -> Finding | None:
    """Find steps that wait for their data."""
    row = evidence.phase("data")
    if row is None or not evidence.enough_of(row.count):
        return None
    if evidence.host_only and max(evidence.idle_most or 0.0, evidence.idle_least) < MIN_INPUT_SHARE:
        return None  # the host's wait costs nothing while the GPU works
    total = row.mean * row.count
    repeated = row.recurring / total if total else 0.0  # a first wait starts the workers and is no habit
    part, mean = row.share * repeated, row.mean * repeated
    lost = evidence.of_wall(row.recurring)
    if part < MIN_INPUT_SHARE or lost < MIN_INPUT_SHARE / 2:  # else start-up or evaluation is what takes the time
        return None
    in_bursts = row.p50 < MAX_BURST_MEDIAN * mean
    workers = evidence.setting("dataloader_num_workers", "num_workers")
    cpus = evidence.setting("cpus")
    lines = [f"data: mean {duration(mean)} per step, median {duration(row.p50)}, p95 {duration(row.p95)}"]
    lines += [f"{workers[0]}={workers[1]}"] if workers is not None else []
    lines += [f"{cpus[1]} usable CPU cores"] if cpus is not None else []
    lines += evidence.places("data")
    passes = evidence.state.main.passes
    is_anew = (passes.batches or 0) > 1 and passes.number >= MIN_NEW_ITERATORS * evidence.steps
    lines += [f"{passes.number:,} iterators of the loader for {evidence.steps:,} steps"] if is_anew else []
    is_small = mean < (HANDOVER_SECONDS if workers is not None and workers[1] else FETCH_SECONDS)
    if is_small:
        lines.append("fetching any batch takes about as long: the step is small")
    # Workers wait for cores, too: on a crowded machine a lesser wait may be the neighbors' doing.
    crowd = crowded(evidence) if part < MIN_CRITICAL_INPUT_SHARE else None
    lines += [crowd] if crowd else []
    return Finding(
        code="input-bound",
        severity="info" if is_small or crowd else "critical" if part >= MIN_CRITICAL_INPUT_SHARE else "warning",
        title=f"Input-bound: {share(part)} of step time waits for data" + (", in bursts" if in_bursts else ""),
        evidence=lines,
        advice=NEW_ITERATORS if is_anew else _input_advice(workers, cpus and cpus[1], in_bursts, is_small),
        lost_fraction=lost,
    )


NEW_ITERATORS = (
    "Iterate the loader once for all of its batches, or keep its iterator: next(iter(loader)) makes a new one for each"
    " batch, which shuffles all indices and starts all workers again."
)


def _input_advice(workers: tuple[str, object] | None, cpus: object, in_bursts: bool, is_small: bool) -> str:
    if is_small:
        return "Use larger batches. Keep data that fits in memory as tensors and index them without a loader."
    if in_bursts:
        return (
            "Keep workers alive between epochs (persistent_workers=True), raise prefetch_factor, and check what the"
            " loader does at the start of an epoch or a shard."
        )
    if workers is None or not isinstance(workers[1], int):
        return "Prepare batches in parallel (DataLoader workers, a prefetching thread), or once before training."
    name, count = workers[0], workers[1]
    if isinstance(cpus, int) and cpus <= max(1, count):
        return (
            f"{name}={count} on {cpus} usable cores: more workers will not help. Preprocess once before training"
            " (tokenize, resize, cache), or get more cores."
        )
    most = min(max(2, 2 * count), cpus) if isinstance(cpus, int) else max(2, 2 * count)
    return f"Set {name}={count} → {most}; if the wait stays, make items cheaper to load or preprocess them once."


# Logging, moving averages and progress bars around the phases take some percent everywhere.
MIN_UNNAMED_SHARE = 0.20
MIN_WARNING_UNNAMED_SHARE = 0.35


@rule("unaccounted-time", Family.WAITING, suppresses=("gpu-starved",), idle_time=True)
def unaccounted_time(evidence: Evidence) -> Finding | None:
    """Find much time in steps in no phase, where phases are known, or outside all steps."""
    if not evidence.enough() or not evidence.report.wall.total or evidence.host_only:
        return None
    inside, outside = _without_computation(evidence, unnamed_in_steps(evidence)), evidence.between
    named = sampled_activity(evidence)  # it has a rule of its own, with a limit of its own
    rest = 1 - named[1] / (inside + outside) if named is not None else 1.0
    # Of the time since the first step: a long start makes no habit smaller. Of a run that is mostly start-up half as
    # much is required: less there gains nothing.
    longest = max(inside, outside)
    worst = min(evidence.of_loop(longest), 2 * evidence.of_wall(longest)) * rest
    if worst < MIN_UNNAMED_SHARE:
        return None
    lines = []
    other = evidence.phase(OTHER)
    if other is not None and inside:
        part = other.share * inside / (other.mean * other.count)
        lines.append(f"in steps, in no phase: {duration(inside / other.count)} per step, {share(part)} of step time")
    lines.append(f"between steps: {duration(outside)}, {share(evidence.of_wall(outside))} of wall time")
    lines += evidence.unnamed_places()
    where = " between steps" if outside > inside else ""
    is_warning = worst >= MIN_WARNING_UNNAMED_SHARE and not _is_planned(evidence, inside, outside)
    return Finding(
        code="unaccounted-time",
        severity="warning" if is_warning else "info",
        title=f"Unaccounted time: {share(evidence.of_wall(longest) * rest)} of wall time in no phase{where}"
        + (f", besides {named[0]}" if named else ""),
        evidence=lines,
        advice="Check what the loop does there: logging, .item() calls, saving, plotting, an environment or simulator."
        ' Wrap a part in `with th.phase("name"):` to time it separately.',
        lost_fraction=evidence.of_wall(inside + outside) * rest,
        culprit=BETWEEN_STEPS if outside > inside else OTHER,
    )


def _is_planned(evidence: Evidence, inside: float, outside: float) -> bool:
    """Return whether a few steps do more, made up of many parts, as a rollout is: that belongs to the loop.

    One line that takes most of it is worth a warning: nothing shows that it has to.
    """
    other, samples = evidence.phase(OTHER), evidence.stack_samples(*UNNAMED)
    if other is None or not samples or outside > inside:
        return False
    in_bursts = other.p50 < MAX_BURST_MEDIAN * inside / other.count
    return in_bursts and max(samples.values()) < MIN_ACTIVITY_SHARE * sum(samples.values())


# Interruptions: checkpoints, evaluations, logging.

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
        (operations.CHECKPOINT, "save", "save_checkpoint"),
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
        (operations.EVAL, "evaluation", "validation"),
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
        (operations.LOGGING, "log"),
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
    seconds = evidence.named(*activities) + sampled + late
    part = seconds / (wall.stepping + late) if wall.stepping else 0.0
    if not evidence.enough() or part < min_share:
        return None
    often = sampled or sum(span.name in activities for span in evidence.state.main.marks) >= MIN_TIMES
    often = often or any(row.name in activities and row.count >= MIN_TIMES for row in evidence.report.phases)
    if not often and evidence.of_wall(seconds) < min_share:
        return None
    if sampled:
        lines = [f"about {duration(seconds)} in {what}, by stack samples"]
        for phases in (UNNAMED, ("forward",)):
            if _activity_share(evidence.sampled_seconds(*phases), what):
                lines += evidence.unnamed_places() if phases == UNNAMED else evidence.places(*phases)
    else:
        lines = [f"{duration(seconds)} in {what}, {duration(wall.steps)} in steps"]
    lines += [f"{duration(late)} of it after the last step"] if late else []
    return Finding(
        code=code,
        severity="warning",
        title=f"{name}: {'about ' if sampled else ''}{share(part)} of the time {SINCE}",
        evidence=lines,
        advice=advice,
        lost_fraction=evidence.of_wall(seconds),
        once_fraction=evidence.of_wall(late),
    )


# Of the time since the first step. It is estimated: what is found below a tenth is told, and no warning.
MIN_COLLECTION_SHARE = 0.03
MIN_WARNING_COLLECTION_SHARE = 0.10


@rule(
    "garbage-collection",
    Family.WAITING,
    suppresses=(Suppress(("unaccounted-time", "slow-steps", "slow-drift"), if_most=True),),
)
def garbage_collection(evidence: Evidence) -> Finding | None:
    """Find collections of all Python objects that take much of the time."""
    if not evidence.enough() or evidence.device is not None:  # a GPU's idle time in collections is in its own account
        return None
    found = evidence.facts("collections")
    count, paused = found.get("full"), found.get("seconds")
    called = sampled_seconds(evidence, COLLECTION)
    seconds = max(called, float(paused) if isinstance(paused, int | float) else 0.0)
    part = min(1.0, evidence.of_loop(seconds))
    if part < MIN_COLLECTION_SHARE:
        return None
    lines = [f"about {duration(seconds)} in collections of all objects"]
    if isinstance(count, int) and count > 0:
        lines[0] += f", {count:,} of them"
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

MIN_STARTUP_SECONDS = 10.0  # besides imports; less is not slow
MIN_STARTUP_SHARE = 0.25  # of the whole run; a long run pays any start back
MAX_STARTUP_ROWS = 4


@rule("slow-startup", Family.WAITING)
def slow_startup(evidence: Evidence) -> Finding | None:
    """Find a start-up that is long in itself and compared to the run."""
    wall, rows = evidence.report.wall, evidence.report.startup
    if wall.startup is None or evidence.of_wall(wall.startup) < MIN_STARTUP_SHARE:
        return None
    imports = sum(row.seconds for row in rows if row.name.startswith("import "))
    if wall.startup - imports < MIN_STARTUP_SECONDS:
        return None  # every run has imports
    if evidence.is_running or not evidence.steps:
        return None  # its share is unknown before the end
    return Finding(
        code="slow-startup",
        severity="info",
        title=f"Slow start-up: {duration(wall.startup)}, {share(evidence.of_wall(wall.startup))} of the run",
        evidence=[f"{row.name} {duration(row.seconds)}" for row in rows[:MAX_STARTUP_ROWS]],
        advice="Cache what each start repeats: downloads, tokenized data, compiled graphs; load weights from a local"
        " disk.",
        lost_fraction=evidence.of_wall(wall.startup),
    )


MIN_READINGS = 30  # of the host, one a second
# Percent of the time in which some task waited for I/O; a busy disk that keeps up is below ten.
MIN_PRESSURE_PERCENT = 40.0
MIN_DISK_RATE = 4.0  # MiB per second that the training reads and writes: it is not some other program that waits


@rule("disk-slow", Family.HOST, idle_time=True)
def disk_slow(evidence: Evidence) -> Finding | None:
    """Find data or checkpoints that wait for a disk which the training itself keeps busy."""
    cause = input_bound(evidence) or checkpoint_stall(evidence)
    readings = [row for row in evidence.state.host if row.pressure_io is not None]
    if cause is None or len(readings) < MIN_READINGS:
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


# Of the others' time: every tenth GPU idles. Whether a rank counts at all, `monitor.model.rank_waits` decides.
MIN_STRAGGLER_SHARE = 0.10


@rule("straggler", Family.WAITING, suppresses=("gpu-starved",))
def straggler(evidence: Evidence) -> Finding | None:
    """Find one rank that the others wait for."""
    late, wall = evidence.report.straggler, evidence.report.wall
    if late is None:
        return None
    wait = f"{duration(late.seconds)} per step in backward and other collectives"
    return Finding(
        code="straggler",
        severity="warning" if late.share >= MIN_STRAGGLER_SHARE else "info",
        title=f"Straggler: rank {late.rank}, others wait at least {share(late.share)} of step time",
        evidence=[f"median wait {wait}, last {late.steps} steps", *_straggler_lines(evidence, late)],
        advice=f"Compare rank {late.rank}'s data wait, clocks and host neighbors with the other ranks'. Give each rank"
        " the same amount of work (lengths, not only batch sizes). Log, save and evaluate on no rank alone.",
        lost_fraction=late.share * evidence.of_wall(wall.steps + wall.between_steps),
    )


def _straggler_lines(evidence: Evidence, late: Straggler) -> list[str]:
    """Return where the rank takes longer, by the GPU's clock; else who waits longest, by the host's."""
    if late.culprit is not None:
        name = "time in no phase" if late.culprit == OTHER else late.culprit
        return [f"its GPU takes longer in {name}, by the GPUs' clocks; the rank that comes last is charged"]
    waits = [row for row in evidence.report.ranks if row.usual_wait is not None]
    longest = max(waits, key=lambda row: row.usual_wait or 0.0, default=None)
    if longest is None:
        return []
    return [f"rank {longest.rank} waits longest: {duration(longest.usual_wait)} per step, {share(longest.wait_share)}"]
