"""Time in which nothing is computed: steps that wait for data, and time that no phase explains. Pure."""

from __future__ import annotations

from monitor.diagnosis import unnamed
from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.neighbours import crowded
from monitor.model.fold import OTHER
from monitor.model.report import Finding, PhaseRow
from monitor.units import duration, share

ENOUGH = 20  # steps; the first ones of a loader start its workers and fill its queue
# A perfect loader would gain this share of the wall time: 1.18x at 0.15, which is worth changing an argument for.
INPUT_WORTH = 0.15
INPUT_GRAVE = 0.30
# Seconds that a batch of anything takes: put together in the process itself, or handed over by a worker through a queue
# and shared memory. Waits as short as that are those of a small step, and of no slow loader.
FETCHED = 0.0005
HANDED_OVER = 0.002
# Logging, moving averages and progress bars around the phases take some percent everywhere.
UNNAMED_WORTH = 0.20
UNNAMED_GRAVE = 0.35
# Of all waiting, in one step: no habit of the steps, whatever a short run makes of it.
ONE_WAIT = 0.6
BURSTS = 0.5  # the usual wait explains less than this much of all waiting: it comes in bursts


def input_bound(evidence: Evidence) -> Finding | None:
    """Steps wait for their data."""
    row = evidence.phase("data")
    if row is None or (row.count < ENOUGH and (2 * row.count < evidence.steps or not evidence.enough(ENOUGH))):
        return None
    if evidence.host_only and max(evidence.idle_most or 0.0, evidence.idle_least) < INPUT_WORTH:
        return None  # a wait of the host's while the GPU works costs nothing
    part = row.share * (1 - once(row))
    mean = row.mean * (1 - once(row))
    lost = evidence.of_wall(mean * row.count)
    if part < INPUT_WORTH or lost < INPUT_WORTH / 2:  # else start-up or evaluation is what takes the time
        return None
    in_bursts = row.p50 < BURSTS * mean
    workers = evidence.setting("dataloader_num_workers", "num_workers")
    cpus = evidence.setting("cpus")
    lines = [
        f"data {duration(mean)} a step on average; half of the steps wait {duration(row.p50)} or less,"
        f" one in twenty {duration(row.p95)} or more"
    ]
    if workers is not None:
        lines.append(f"{workers[0]}={workers[1]}")
    if cpus is not None:
        lines.append(f"{cpus[1]} CPU cores are usable")
    lines += evidence.places("data")
    small = mean < (HANDED_OVER if workers is not None and workers[1] else FETCHED)
    if small:
        lines.append("a batch of anything takes about as long to be fetched: the step is small")
    # Workers wait for cores, too: on a crowded machine a lesser wait may be the neighbours' doing.
    crowd = crowded(evidence) if part < INPUT_GRAVE else None
    lines += [crowd] if crowd else []
    return Finding(
        "input-bound",
        "info" if small or crowd else "critical" if part >= INPUT_GRAVE else "warning",
        f"Input-bound: {share(part)} of step time waits for data" + (", in bursts" if in_bursts else ""),
        lines,
        _input_advice(workers, cpus[1] if cpus is not None else None, in_bursts, small),
        lost,
    )


def once(row: PhaseRow) -> float:
    """The share of all waiting that was one single wait, where it is most of it: workers that start, a first shard."""
    whole = row.mean * row.count
    return row.max / whole if whole > 0.0 and ONE_WAIT * whole <= row.max <= whole else 0.0


def _input_advice(workers: tuple[str, object] | None, cpus: object, in_bursts: bool, small: bool) -> str:
    if small:
        return (
            "Larger batches wait less often; data that fits into memory can be kept as tensors there, and indexed"
            " without a loader."
        )
    if in_bursts:
        return (
            "The waits come in bursts: keep workers alive between epochs (persistent_workers=True), raise"
            " prefetch_factor, and see what the loader does at an epoch's or a shard's begin."
        )
    if workers is None or not isinstance(workers[1], int):
        return "Prepare batches beside the training (DataLoader workers, a prefetching thread), or once, beforehand."
    name, count = workers[0], workers[1]
    if isinstance(cpus, int) and cpus <= max(1, count):
        return (
            f"{name}={count} on {cpus} usable cores: more workers will not help. Do the work once, beforehand"
            " (tokenise, resize, cache), or get more cores."
        )
    most = min(max(2, 2 * count), cpus) if isinstance(cpus, int) else max(2, 2 * count)
    return f"{name}={count} → try {most}; if the wait stays, make an item cheaper to load, or prepare it beforehand."


def unaccounted_time(evidence: Evidence) -> Finding | None:
    """Time inside steps in no phase, where phases are told; and time outside all steps."""
    if not evidence.enough(ENOUGH) or not evidence.report.wall.total or evidence.host_only:
        return None
    inside, outside = unnamed.inside(evidence), unnamed.outside(evidence)
    known = unnamed.seen_nowhere(evidence)  # that has a rule of its own, which knows how much of it is too much
    rest = 1 - known[1] / (inside + outside) if known is not None else 1.0
    # Of the time since the first step: a long start makes no habit smaller. Of a run that is mostly start-up half as
    # much is asked for: less there gains nobody anything.
    worst = min(evidence.of_loop(max(inside, outside)), 2 * evidence.of_wall(max(inside, outside))) * rest
    if worst < UNNAMED_WORTH:
        return None
    lines = []
    other = evidence.phase(OTHER)
    if other is not None and inside:
        lines.append(f"inside steps, in no phase: {duration(other.mean)} a step, {share(other.share)} of step time")
    lines.append(f"between steps: {duration(outside)}, {share(evidence.of_wall(outside))} of the elapsed time")
    lines += evidence.places(*unnamed.NOWHERE)
    between = ", between the steps" if outside > inside else ""
    return Finding(
        "unaccounted-time",
        "warning" if worst >= UNNAMED_GRAVE else "info",
        f"{share(evidence.of_wall(max(inside, outside)) * rest)} of the elapsed time is in no phase{between}"
        + (f", besides {known[0]}" if known else ""),
        lines,
        "See what the loop does there: logging, .item() calls, saving, plotting, an environment or a simulator."
        ' `with th.phase("name"):` around a part shows it by itself.',
        evidence.of_wall(inside + outside) * rest,
        culprit=unnamed.BETWEEN if outside > inside else OTHER,
    )
