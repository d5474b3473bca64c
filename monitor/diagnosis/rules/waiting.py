"""Time in which nothing is computed: waits for data, time in no phase, start-up, other ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection

from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import beyond_crowd, crowd_line
from monitor.model.ranks.rank_samples import is_message
from monitor.model.ranks.rank_waits import MIN_OTHERS_WAIT
from monitor.model.report import Finding, Straggler
from monitor.model.steps.sampled_calls import CHECKPOINT, EVAL, kinds_of
from monitor.model.steps.stack_samples import Sample
from monitor.model.steps.time_split import once_in
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.step_blocks import OTHER
from monitor.units import duration, share
from trainhooks.protocol.calls import COLLECTIVE, COMPUTED, COMPUTES, OPTIMIZER, effects_of
from trainhooks.protocol.places import Place

# Time in no phase, and what stack samples show in it.

MIN_ACTIVITY_SHARE = 0.5  # of the stack samples: a part that is sampled less often does not name the whole
# Of the time since the first step. Samples are taken when the interpreter lets go, and writing lets go more often than
# computing does: what they show is no exact share, and a small one proves little.
MIN_SAMPLED_LOOP_SHARE = 0.20
MIN_COMPUTED_SHARE = 0.25  # of the samples in no phase: likewise, a smaller one may be computing beside them
# Of the samples in no phase, in one line that computes with tensors: one that takes more is worth a look, and time in
# Python before it may be seen there, as samples are taken when the interpreter lets go.
MAX_LINE_SHARE = 1 / 3
MIN_NAMED_SHARE = 0.02  # of step time: a program that names one small part has not named the rest


def has_phases(evidence: Evidence) -> bool:
    """Return whether time in no phase means anything. With a backward, torch's own calls are timed, however short."""
    rows = evidence.report.phases
    return any(row.name == "backward" or (row.name != OTHER and row.share > MIN_NAMED_SHARE) for row in rows)


def unnamed_in_steps(evidence: Evidence) -> float:
    """Return the seconds in steps and in no phase, where phases are known, as far as they are a habit."""
    row = evidence.phase(OTHER)
    return row.habit if row is not None and has_phases(evidence) else 0.0


def _accounted_share(evidence: Evidence, told: Collection[Place]) -> float:
    """Return the share of the time in no phase that is no overhead, by stack samples.

    The training itself is computed there: layers called one by one, a loss, a policy's distribution, the clipping of
    gradients. Or a rank waits for others. Where a step begins in hindsight, samples of it are told as between the
    steps.
    """
    samples = evidence.sampled_seconds(*UNNAMED)
    # The optimizer's step has a phase of its own: what samples show of it here was before its begin or behind its end.
    has_phase = evidence.phase(OPTIMIZER) is not None
    computed = sum(part for (_, place), part in samples.items() if _is_computing(place, has_phase) or place in told)
    # A line of the program's that computes with tensors, by what it calls: a loss, a target, a mask.
    tensors = [part for (_, place), part in samples.items() if not place.activity and effects_of(place.call) & COMPUTES]
    if tensors and max(tensors) <= MAX_LINE_SHARE * sum(samples.values()):
        computed += sum(tensors)
    part = computed / sum(samples.values()) if computed else 0.0
    return part if part >= MIN_COMPUTED_SHARE else 0.0


def _told_of_ranks(evidence: Evidence) -> set[Place]:
    """Return the places in no phase that are told of the ranks: a pipeline's waits, a straggler's work and its cost."""
    late = evidence.report.straggler if straggler(evidence) is not None else None
    place = late.place if late is not None and late.rank == evidence.state.main.rank else None
    places = {sample.place for sample in evidence.sampled_seconds(*UNNAMED)}
    waits = {each for each in places if is_message(each) or (late is not None and each.activity == COLLECTIVE)}
    return waits | {each for each in places if str(each) == place}


def _is_computing(place: Place, has_phase: bool) -> bool:
    calls = (place.call, place.library.call if place.library is not None else "")
    is_step = any(call.rpartition(".")[2] == "step" for call in calls)
    return place.activity in COMPUTED and not (has_phase and is_step)


def unnamed_seconds(evidence: Evidence) -> float:
    return unnamed_in_steps(evidence) + evidence.between_steps


def sampled_seconds(evidence: Evidence, what: str) -> float:
    """Return the seconds that stack samples show in this activity while it was in no phase; 0 where they are few.

    Where only the host's clock times a GPU's steps nothing counts: a host that prints a loss waits for the GPU there.
    """
    if evidence.host_only:
        return 0.0
    seconds = unnamed_seconds(evidence) * activity_share(evidence.sampled_seconds(*UNNAMED), what)
    if has_phases(evidence):  # forward is what lies between the data and backward, printing included
        seconds += evidence.named_seconds("forward") * activity_share(evidence.sampled_seconds("forward"), what)
    return seconds if evidence.loop_part(seconds) >= MIN_SAMPLED_LOOP_SHARE else 0.0


def sampled_activity(evidence: Evidence) -> tuple[str, float] | None:
    """Return what most of the time in no phase is by the stack samples, and its seconds."""
    samples = {} if evidence.host_only else evidence.sampled_seconds(*UNNAMED)
    for what in sorted({name for name in kinds_of(sample.place for sample in samples).values() if name is not None}):
        seconds = unnamed_seconds(evidence) * activity_share(samples, what)
        if seconds and evidence.loop_part(seconds) >= MIN_SAMPLED_LOOP_SHARE:
            return what, seconds
    return None


def activity_share(samples: dict[Sample, float], what: str) -> float:
    total, kinds = sum(samples.values()), kinds_of(place for _, place in samples)
    part = sum(seconds for (_, place), seconds in samples.items() if kinds[place] == what) / total if total else 0.0
    return part if part >= MIN_ACTIVITY_SHARE else 0.0


# Seconds that a batch of anything takes: collated in the process itself, or handed over by a worker through a queue and
# shared memory. Waits as short as that are those of a small step, not of a slow loader.
FETCH_SECONDS = 0.0005
SAMPLE_SECONDS = 6e-6  # likewise, a sample of it: a row of a tensor, taken and stacked, takes 3.5 to 6 microseconds
HANDOVER_SECONDS = 0.002
MAX_ADVISED_WORKERS = 8  # where the cores are not known
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
    if row is None or not evidence.is_often(row.count) or evidence.is_hidden_by_gpu:
        return None
    total = row.mean * row.count
    repeated = row.recurring / total if total else 0.0  # a first wait starts the workers and is no habit
    part, mean = row.share * repeated, row.mean * repeated
    in_bursts = row.p50 < MAX_BURST_MEDIAN * mean
    workers = evidence.count_setting("dataloader_num_workers", "num_workers")
    cpus = evidence.facts.cpus
    lines = [f"data: mean {duration(mean)} per step, median {duration(row.p50)}, p95 {duration(row.p95)}"]
    lines += evidence.places("data")
    lines += [f"{workers[0]}={workers[1]}"] if workers is not None else []
    lines += [f"{cpus} usable CPU cores"] if cpus is not None else []
    passes = evidence.state.main.passes
    is_anew = (passes.batches or 0) > 1 and passes.number >= MIN_NEW_ITERATORS * evidence.steps
    lines += [f"{passes.number:,} iterators of the loader for {evidence.steps:,} steps"] if is_anew else []
    pace = evidence.state.main.pace
    collated = SAMPLE_SECONDS * pace.samples / pace.steps if pace.steps else 0.0
    fetches = max(1.0, passes.batches / passes.measured) if passes.batches and passes.measured else 1.0  # of a step
    fetched = fetches * (HANDOVER_SECONDS if workers is not None and workers[1] else FETCH_SECONDS)
    is_small = mean < max(fetched, collated)
    if is_small:
        lines.append("fetching any batch takes about as long: the step is small")
    # Workers wait for cores, too: on a crowded machine the wait may be the neighbors' doing.
    crowd = crowd_line(evidence)
    lines += [crowd] if crowd else []
    lost = evidence.wall_part(row.recurring)
    more = 0 if is_anew or is_small or in_bursts else _more_workers(workers, cpus, part)
    likely = _saved(workers[1], more, cpus, part, evidence.device is None) if workers is not None and more else None
    return Finding(
        code="input-bound",
        title=f"Input-bound: {share(part)} of step time waits for data" + (", in bursts" if in_bursts else ""),
        evidence=lines,
        advice=NEW_ITERATORS if is_anew else _input_advice(workers, cpus, in_bursts, is_small, more),
        cost=evidence.loop_part(row.recurring),
        certain=not is_small,
        outside=crowd is not None,
        lost_fraction=lost,
        likely_fraction=None if likely is None else lost * likely,
    )


NEW_ITERATORS = (
    "Iterate the loader once for all of its batches, or keep its iterator: next(iter(loader)) makes a new one for each"
    " batch, which shuffles all indices and starts all workers again."
)


def _input_advice(workers: tuple[str, int] | None, cpus: int | None, in_bursts: bool, is_small: bool, more: int) -> str:
    if is_small:
        return "Use larger batches. Keep data that fits in memory as tensors and index them without a loader."
    if in_bursts:
        kept = "Keep workers alive between epochs (persistent_workers=True), raise prefetch_factor. "
        return (
            (kept if workers is not None and workers[1] else "")
            + "Check what the loader does in the steps that wait: the start of an epoch or a shard, a download, a"
            " server that refuses for a while (HTTP 429). Store the data locally, or fetch it ahead."
        )
    if workers is None:
        return "Prepare batches in parallel (DataLoader workers, a prefetching thread), or once before training."
    name, count = workers
    if not more:
        return (
            f"{name}={count} on {cpus} usable cores: more workers will not help. Preprocess once before training"
            " (tokenize, resize, cache), or get more cores."
        )
    return f"Set {name}={count} → {more}; if the wait stays, make items cheaper to load or preprocess them once."


def _more_workers(workers: tuple[str, int] | None, cpus: int | None, waits: float) -> int:
    """Return how many workers to try: as many as make a batch in the time of the rest of a step. 0: no more than now.

    Without workers the wait makes the whole batch, with them the step is as long as they need for one each.
    """
    if workers is None or (cpus is not None and cpus <= max(1, workers[1])):
        return 0
    wanted = math.ceil((workers[1] or waits) / (1.0 - waits)) if waits < 1.0 else cpus or MAX_ADVISED_WORKERS
    return min(max(2, workers[1] + 1, wanted), cpus or MAX_ADVISED_WORKERS)


def _saved(count: int, more: int, cpus: int | None, waits: float, on_cpu: bool) -> float:
    """Return which part of the wait so many workers take away, where each makes batches as fast as now.

    Args:
        on_cpu: the training computes on the same cores.
    """
    work, rest = count or waits, 1.0 - waits  # of a step's time
    step = max(rest, work / more, (work + rest) / cpus if on_cpu and cpus else 0.0)
    return min(1.0, max(0.0, 1.0 - step) / waits)


# Of the time since the first step: logging, moving averages and progress bars around the phases take some percent
# everywhere.
USUAL_UNNAMED = 0.20


@rule("unaccounted-time", Family.WAITING, suppresses=("gpu-starved",), idle_time=True, only_bound=True)
def unaccounted_time(evidence: Evidence) -> Finding | None:
    """Find much time in steps in no phase, where phases are known, or outside all steps."""
    if not evidence.has_steps() or not evidence.report.wall.total or evidence.host_only or not _is_divided(evidence):
        return None
    told = _told_of_ranks(evidence)
    overhead = 1.0 - _accounted_share(evidence, told)
    inside, outside = overhead * unnamed_in_steps(evidence), overhead * evidence.between_steps
    named = sampled_activity(evidence)  # it has a rule of its own, with a limit of its own
    rest = 1 - named[1] / (inside + outside) if named is not None else 1.0
    longest = max(inside, outside)
    worst = evidence.loop_part(longest) * rest
    if worst < USUAL_UNNAMED:
        return None
    lines = []
    other = evidence.phase(OTHER)
    if other is not None and inside:
        part = other.share * inside / (other.mean * other.count)
        lines.append(f"in steps, in no phase: {duration(inside / other.count)} per step, {share(part)} of step time")
    if outside:
        lines.append(f"between steps: {duration(outside)}, {share(evidence.wall_part(outside))} of wall time")
    lines += evidence.unnamed_places(left_out := {str(each) for place in told for each in (place, place.users)})
    where = " between steps" if outside > inside else ""
    # Few samples cannot tell computing from overhead. Where nothing is sampled at all, only the measured time speaks.
    is_known = evidence.report.unnamed is not None or not evidence.state.main.samples.looks
    lines += [] if is_known else ["too few stack samples to tell what it is"]
    return Finding(
        code="unaccounted-time",
        title=f"Unaccounted time: {share(evidence.wall_part(longest) * rest)} of wall time in no phase{where}"
        + (f", besides {named[0]}" if named else ""),
        evidence=lines,
        advice=_unaccounted_advice(evidence, left_out),
        cost=worst,
        certain=is_known and not _is_planned(evidence, inside, outside),
        lost_fraction=min(evidence.loop_share, evidence.wall_part(inside + outside)) * rest,
        culprit=BETWEEN_STEPS if outside > inside else OTHER,
    )


MIN_AT_ONE_LINE = 0.5  # of it: what else there is costs less than that line


def _unaccounted_advice(evidence: Evidence, told: Collection[str]) -> str:
    parts = [] if evidence.report.unnamed is None else evidence.report.unnamed.parts
    left = [part for part in parts if part.place not in told]
    first, seconds = next((part for part in left if part.place is not None), None), sum(part.seconds for part in left)
    if first is not None and first.seconds >= MIN_AT_ONE_LINE * seconds:
        return (
            f"{share(first.seconds / seconds)} of it is at {first.place}: do that less often, for all rows at"
            " once, or in another thread."
        )
    return (
        "Check what the loop does there: logging, .item() calls, saving, plotting, an environment or simulator."
        ' Wrap a part in `with th.phase("name"):` to time it separately.'
    )


MIN_DIVIDED_SHARE = 0.5  # of the steps have the phases that a program prints
MIN_PRINTED_PHASES = 2  # beside the loader's: who times two parts of the computing means to time all of it


def _is_divided(evidence: Evidence) -> bool:
    """Return whether the phases mean to cover a step. A program may print a single one, or those of slow steps only."""
    if evidence.state.main.source != "console":
        return True
    often = MIN_DIVIDED_SHARE * evidence.steps
    rows = [row for row in evidence.report.phases if row.name not in ("data", OTHER) and row.count >= often]
    return len(rows) >= MIN_PRINTED_PHASES


def _is_planned(evidence: Evidence, inside: float, outside: float) -> bool:
    """Return whether a few steps do more, made up of many parts, as a rollout is: that belongs to the loop.

    One line that takes most of it is worth a warning: nothing shows that it has to.
    """
    other, samples = evidence.phase(OTHER), evidence.stack_samples(*UNNAMED)
    if other is None or not samples or outside > inside:
        return False
    in_bursts = other.p50 < MAX_BURST_MEDIAN * inside / other.count
    return in_bursts and max(samples.values()) < MIN_ACTIVITY_SHARE * sum(samples.values())


MIN_OWN_STARTUP = 10.0  # besides imports; less is not slow
MIN_RUN_STARTUP = 0.25  # of the whole run; a long run pays any start back
MAX_STARTUP_ROWS = 4


@rule("slow-startup", Family.WAITING, priority=20)  # it comes once: what each step costs comes first
def slow_startup(evidence: Evidence) -> Finding | None:
    """Find a start-up that is long in itself and compared to the run, with what the first steps waited for."""
    wall, rows = evidence.report.wall, evidence.report.startup
    if wall.startup is None:
        return None
    first = _first_wait(evidence)
    whole, imports = wall.startup + first, sum(row.seconds for row in rows if row.name.startswith("import "))
    if evidence.wall_part(whole) < MIN_RUN_STARTUP or whole - imports < MIN_OWN_STARTUP:
        return None  # every run has imports
    if evidence.is_running or not evidence.steps:
        return None  # its share is unknown before the end
    lines = [(row.seconds, row.name) for row in rows]
    lines += [(first, "first steps, beyond a typical one")] if first else []
    return Finding(
        code="slow-startup",
        severity="info",
        title=f"Slow start-up: {duration(whole)}, {share(evidence.wall_part(whole))} of the run",
        evidence=[f"{name} {duration(seconds)}" for seconds, name in sorted(lines, reverse=True)[:MAX_STARTUP_ROWS]],
        advice="Cache what each start repeats: downloads, tokenized data, compiled graphs; load weights from a local"
        " disk. A first step that waits for data may skip the batches of an earlier run, or list files.",
        lost_fraction=evidence.wall_part(whole),
    )


def _first_wait(evidence: Evidence) -> float:
    """Return the seconds of the first steps beyond a typical one; compilation has a finding of its own."""
    main = evidence.state.main
    early, _ = once_in(main.step_seconds.settled().quantiles, [step.duration for step in main.opening])
    return max(0.0, early - (evidence.facts.compile.seconds or 0.0))


MIN_CROWDED_LATE = 0.9  # of the steps in which a rank is late, where others that hold the cores may cost as much


@rule("straggler", Family.WAITING, suppresses=("gpu-starved",))
def straggler(evidence: Evidence) -> Finding | None:
    """Find one rank that the others wait for."""
    late, wall = evidence.report.straggler, evidence.report.wall
    if late is None:
        return None
    in_few = late.late_steps is not None and late.late_steps < MIN_CROWDED_LATE * late.steps
    if in_few and beyond_crowd(evidence, late.share) <= MIN_OTHERS_WAIT:
        return None  # whoever has lost its core is late
    wait = {
        "calls": f"mean wait {duration(late.seconds)} per step, by the times at which the ranks call their collectives:"
        f" rank {late.rank} is last in {late.late_steps} of {late.steps} steps",
        "samples": f"the others wait for it {share(late.share)} of the time, by stack samples",
    }.get(
        late.basis,
        f"median wait {duration(late.seconds)} per step in backward and other collectives, last {late.steps} steps",
    )
    where = f" {late.where}" if late.where else ""
    hosts = {row.rank: row.host for row in evidence.report.ranks if row.host}
    host = f" on {hosts[late.rank]}" if late.rank in hosts and len(set(hosts.values())) > 1 else ""
    return Finding(
        code="straggler",
        title=f"Straggler: rank {late.rank}{host}{where}, others wait at least {share(late.share)} of step time",
        evidence=[wait, *_straggler_lines(evidence, late)],
        advice=_straggler_advice(late),
        lost_fraction=late.share * evidence.wall_part(wall.steps + wall.between_steps),
    )


def _straggler_advice(late: Straggler) -> str:
    """Return what to look at on the rank, by the phase that it takes longer in; all of it where that is unknown."""
    work = "Give each rank the same amount of work (lengths, not only batch sizes)."
    if late.culprit == "data":
        return f"Rank {late.rank} waits for data: compare its workers, its storage and its host's other load. {work}"
    if late.culprit in (BETWEEN_STEPS, OTHER, CHECKPOINT, EVAL):
        at = f"at {late.place}" if late.place is not None else late.where
        return f"Log, save and evaluate on no rank alone: see what rank {late.rank} does {at}."
    if late.culprit is not None:
        return f"{work} If they have it, compare rank {late.rank}'s clocks and its host's other load."
    return (
        f"Compare rank {late.rank}'s data wait, clocks and host neighbors with the other ranks'. {work}"
        " Log, save and evaluate on no rank alone."
    )


def _straggler_lines(evidence: Evidence, late: Straggler) -> list[str]:
    """Return where the rank takes longer, by phases, and who waits longest."""
    lines = []
    if late.culprit is not None:
        clock = "by the GPUs' clocks" if evidence.report.device is not None else "by the hosts' clocks"
        clock = "by stack samples" if late.basis == "samples" else clock
        took = f"{duration(late.own_seconds)} {late.where}, the others {duration(late.others_seconds)}"
        lines = [f"rank {late.rank} takes {took}, {clock}"]
        lines += [f"it is mostly at {late.place}"] if late.place is not None else []
    waits = [row for row in evidence.report.ranks if row.usual_wait is not None]
    longest = max(waits, key=lambda row: row.usual_wait or 0.0, default=None)
    if longest is not None:
        waited = f"{duration(longest.usual_wait)} per step, {share(longest.wait_share)}"
        lines.append(f"rank {longest.rank} waits longest: {waited}")
    return lines
