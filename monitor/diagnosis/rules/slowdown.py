"""Slower than before, within the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from monitor.diagnosis import hardware
from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import MIN_READINGS_SHARE, contention_slowdown, crowd_line
from monitor.model.report import Finding
from monitor.model.steps.growth import is_jump, slope
from monitor.model.steps.pace import Pace, amounts_per_step
from monitor.model.steps.series import Column
from monitor.model.steps.stack_samples import Sample
from monitor.model.steps.unnamed_time import sampled_growth
from monitor.step_blocks import OTHER
from monitor.units import brief, share
from trainhooks.protocol.places import Line
from trainhooks.protocol.vocabulary import ENV_STEPS

MIN_DRIFT_STEPS = 40
MIN_DRIFT = 1.20  # the last third against the first: past the ups and downs of a shared host's quarter hours
# In less than a minute of steps, less than half as much again is no warning: for seconds a machine may be slower by its
# clocks, its memory or its scheduler, and nothing tells.
MIN_SURE_DRIFT, MIN_SURE_SECONDS = 1.5, 60.0
MIN_AGREEING_SHARE = 0.8  # of the buckets of the last third lie above the first third: it lasts, and is no spike
# Times slower; less may be others on a crowded machine, whose share is never known exactly.
MIN_BEYOND_NEIGHBORS = 2.0
# A phase appeared in, or vanished from, so many of the steps: they do something else, and may take longer.
MAX_PHASE_CHANGE = 0.2
# What a step of reinforcement learning collects: longer episodes and answers take longer.
COLLECTED = (ENV_STEPS, "new_tokens")
MIN_DRIFT_SECONDS = 0.001  # per step; less is the scheduler's
MIN_OPTIMIZER_SECONDS = 1e-4  # per step; a shorter one is mostly calls, not arithmetic
MIN_IN_THIRD = 8  # by the GPU's clock, in each third
MIN_THIRD_VALUES = 3
MIN_CULPRIT_GROWTH = 0.25  # of the drift, for a phase to be named: there are seldom more than four that matter
MIN_COMPUTED_RISE = 0.75  # of the drift, in forward and backward: the rest goes to a larger optimizer and batch
NEWEST = 20  # steps that show whether it is over
MAX_RECOVERED = 1.10  # of the first third: the newest steps are as fast as those were; half of what makes a drift


@rule(
    "slow-drift",
    Family.PROGRESS,
    # Most of the time in no phase is what has grown there since the beginning.
    suppresses=(Suppress(("unaccounted-time",), same_culprit=True, if_info=True, if_most=True),),
)
def slow_drift(evidence: Evidence) -> Finding | None:
    """Find steps that got slower over the run and stayed so, beyond what their tokens explain."""
    if evidence.steps < MIN_DRIFT_STEPS or not _timed_often_enough(evidence):
        return None
    means = _step_seconds(evidence)
    early, late, slower = _drift(means)
    between = False
    if not slower:
        if evidence.device is not None or _come_in_blocks(evidence):
            return None  # the GPU's steps hold what lies between them
        means = _periods(evidence.state.main.pace)
        early, late, slower = _drift(means)
        if not slower:
            return None
        between = True  # the steps take what they took; what lies between them grows
    if _is_other_work(evidence) or _is_explained(evidence, early, late):
        return None
    lost = _lost_share(evidence, min(early, _start_median(means)), between)
    if between and lost <= 0:
        return None  # what grows there has a name of its own: evaluations, checkpoints, logging
    grown = _grown_phases(evidence)
    culprit = BETWEEN_STEPS if between else max(grown, key=lambda name: grown[name], default=None)
    if not between and culprit is not None and grown[culprit] < MIN_CULPRIT_GROWTH * (late - early):
        culprit = None
    newest = _newest_seconds(evidence, between)
    over = newest <= MAX_RECOVERED * early
    crowd = crowd_line(evidence) if late < MIN_BEYOND_NEIGHBORS * early else crowd_line(evidence, MIN_READINGS_SHARE)
    lines = [f"first third {brief(early)} per step, last third {brief(late)}"]
    lines += [f"last {NEWEST} steps {brief(newest)} per step: over"] if over else []
    lines += evidence.unnamed_places() if between else []
    lines += [crowd] if crowd else []
    is_unsure = late < MIN_SURE_DRIFT * early and evidence.report.wall.stepping < MIN_SURE_SECONDS
    jumps = not between and _computes_more(evidence, grown, late - early)
    lines += ["all at once, between two even levels, in what the model computes: other work?"] if jumps else []
    if culprit is not None and grown.get(culprit, 0.0) > 0:
        lines.append(f"{culprit} grew most: +{brief(grown[culprit])} per step")
    lines += _grown_line(evidence)
    where = f", in {culprit}" if culprit and not between else ", between steps" if between else ""
    return Finding(
        code="slow-drift",
        cost=1.0 - early / late,
        certain=not (crowd or over or jumps or is_unsure),
        title=f"Drift: steps {share(late / early - 1)} slower than at the start{where}{' (ended)' if over else ''}",
        evidence=lines,
        advice="Look for what grows with the run: a list that is kept, sequence lengths, a cache, a filling disk. Check"
        " for lower clocks (heat, power) and new neighbors on the host.",
        lost_fraction=lost,
        culprit=culprit,
        over=over,
    )


def _timed_often_enough(evidence: Evidence) -> bool:
    """Return whether enough stretches were timed: the GPU's clock times some steps together, and weighs them alike."""
    return evidence.device is None or evidence.host_only or evidence.state.main.device.stretches >= 3 * MIN_IN_THIRD


def _step_seconds(evidence: Evidence) -> Sequence[float]:
    """Return seconds per step over the run: by the GPU's clock, else by the run's pace; without a GPU by the steps."""
    main = evidence.state.main
    if evidence.device is None:
        return main.step_seconds.curve().mean
    if evidence.host_only:  # in long stretches: a host waits for the GPU in one step of many
        return _periods(main.pace, 3 * MIN_IN_THIRD)
    return main.device.paces.curve().mean


def _newest_seconds(evidence: Evidence, between: bool) -> float:
    """Return the typical seconds of the newest steps, or from the end of one to that of the next."""
    steps = evidence.state.main.latest.steps()[-NEWEST:]
    if evidence.device is not None:  # a host runs ahead, and waits for many steps in one
        return (steps[-1].start + steps[-1].duration - steps[0].start) / len(steps)
    if not between:
        return median(step.duration for step in steps)
    ends = [step.start + step.duration for step in steps]
    return median(after - before for before, after in pairwise(ends))


def _come_in_blocks(evidence: Evidence) -> bool:
    """Return whether a program's output comes in blocks: of their steps only the sum of the times between is known."""
    main = evidence.state.main
    latest = main.latest.steps()
    delays = [step.t - step.start - step.duration for step in latest]
    return main.source == "console" and median(delays) > median(step.duration for step in latest)


def _is_other_work(evidence: Evidence) -> bool:
    """Return whether late steps are of another kind than early ones: of another stage, or with other phases."""
    main = evidence.state.main
    if len({kind.stage for kind in main.baselines}) > 1:
        return True  # a curriculum: its stages have paces of their own
    steps = main.step_seconds.settled()
    early, late = _third_counts(steps, steps)
    collected = [main.metrics[name].settled() for name in COLLECTED if name in main.metrics]
    for column in [*(stats.seconds.settled() for stats in main.phases.values()), *collected]:
        first, last = _third_counts(column, steps)
        if abs(last / max(1, late) - first / max(1, early)) > MAX_PHASE_CHANGE:
            return True
    return _begins_late(evidence, late)


def _computes_more(evidence: Evidence, grown: dict[str, float], rise: float) -> bool:
    """Return whether the steps rise once, in forward and backward: layers that train from then on, larger images."""
    computing = sum(grown.get(name, 0.0) for name in ("forward", "backward"))
    return computing >= MIN_COMPUTED_RISE * rise and is_jump(_step_seconds(evidence))


def _begins_late(evidence: Evidence, late: int) -> bool:
    """Return whether spans come beside many of the last third's steps and beside none of the first third's.

    A training that begins to generate is another one: a second stage, or a second program in the same process.
    """
    main = evidence.state.main
    third = main.steps_ok / 3
    by_name: dict[str, list[int]] = {}
    for mark in main.marks:
        if mark.step is not None:
            by_name.setdefault(mark.name, []).append(mark.step)
    return any(
        min(steps) >= third and sum(step >= 2 * third for step in steps) > MAX_PHASE_CHANGE * late
        for steps in by_name.values()
    )


def _is_explained(evidence: Evidence, early: float, late: float) -> bool:
    """Return whether late steps may take longer for what they do and for a slower machine: the two multiply."""
    slowdown = contention_slowdown(evidence)
    if slowdown is None:
        return True
    return late < MIN_DRIFT * early * max(slowdown, _machine_slowdown(evidence)) * _work_growth(evidence)


def _machine_slowdown(evidence: Evidence) -> float:
    """Return how many times longer the optimizer takes in the last third: the work of its step never grows.

    On a CPU that shows its clock and what others use of its memory, which nothing else tells. A GPU tells its clock.
    """
    stats = evidence.state.main.phases.get("optimizer")
    if stats is None or evidence.device is not None or hardware.model_device(evidence) != "cpu":
        return 1.0
    early, late, _ = _thirds(stats.seconds.curve().mean)
    return max(1.0, late / early) if early >= MIN_OPTIMIZER_SECONDS else 1.0


def _work_growth(evidence: Evidence) -> float:
    """Return how many times as much the late steps do: in tokens or samples, or in what they collect; at least 1."""
    main = evidence.state.main
    columns = [main.metrics[name].settled() for name in COLLECTED if name in main.metrics]
    growth = 1.0
    for amounts in (amounts_per_step(main.pace), *(column.curve().mean for column in columns)):
        fewer, more, _ = _thirds(amounts)
        if fewer > 0:
            growth = max(growth, more / fewer)
    return growth


def _third_counts(column: Column, steps: Column) -> tuple[int, int]:
    """Return how many values lie in the first and in the last third of the steps."""
    begin = int(steps.history.index[0]) * steps.history.width
    third = (steps.newest - begin) / 3
    places, counts = column.history.index * column.history.width, column.history.of("count")
    return int(counts[places < begin + third].sum()), int(counts[places >= begin + 2 * third].sum())


def _lost_share(evidence: Evidence, start: float, between: bool) -> float:
    """Return the share of the elapsed time that lies beyond the speed of the start."""
    main, wall = evidence.state.main, evidence.report.wall
    spent = wall.steps + wall.between_steps if between else wall.steps
    return evidence.wall_part(max(0.0, spent - start * main.step_seconds.settled().count))


def _drift(means: Sequence[float]) -> tuple[float, float, bool]:
    """Return the medians of the first and the last third, and whether the rise is a drift and no chance."""
    early, late, agree = _thirds(means)
    if late < MIN_DRIFT * early or late - early < MIN_DRIFT_SECONDS or agree < MIN_AGREEING_SHARE:
        return early, late, False
    values = [value for value in means if value == value]
    trend = slope(list(enumerate(values))[len(values) // 10 :])  # the warm-up left out, as in the thirds
    return early, late, trend is not None and trend.rises


def _grown_phases(evidence: Evidence) -> dict[str, float]:
    """Return seconds per step by which each phase grew; empty where none is known, by the clock that counts."""
    if evidence.host_only:
        return {}
    main = evidence.state.main
    if evidence.device is not None:
        columns = {name: column.settled() for name, column in main.device.phases.items()}
    else:
        columns = {name: stats.seconds.settled() for name, stats in main.phases.items()}
    thirds = {name: _thirds(column.curve().mean) for name, column in columns.items() if columns.keys() != {OTHER}}
    return {name: late - early for name, (early, late, _) in thirds.items()}


def _grown_line(evidence: Evidence) -> list[str]:
    """Return the line of the program that grew most, by stack samples in all phases; none where none did."""
    main = evidence.state.main
    by_line: dict[Line, list[Sample]] = {}
    for sample in main.samples.looks:
        by_line.setdefault(sample.place.users, []).append(sample)
    known = {line: growth for line, seen in by_line.items() if (growth := sampled_growth(main, seen)) is not None}
    most = max(known, key=lambda line: known[line].late - known[line].early, default=None)
    if most is None:
        return []
    return [f"{most}: {brief(known[most].early)} → {brief(known[most].late)} per step, by stack samples"]


def _periods(pace: Pace, most: int | None = None) -> list[float]:
    """Return seconds from the end of a step to that of the next, by the marks along the run; in `most` parts."""
    marks = pace.whole[1:]  # the first one lies before a step
    if most is not None:
        marks = marks[:: max(1, len(marks) // most)]
    return [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(marks) if b[1] > a[1]]


def _thirds(means: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the first third (its first tenth, the warm-up, left out) and of the last third.

    The third value is the share of the last third that lies above the first median.
    """
    values = [value for value in means if value == value]
    third = len(values) // 3
    if third < MIN_THIRD_VALUES:
        return 0.0, 0.0, 0.0
    first, last = values[len(values) // 10 : third + len(values) // 10], values[-third:]
    early = median(first)
    return early, median(last), sum(value > early for value in last) / len(last)


def _start_median(means: Sequence[float]) -> float:
    """Return the median of the second tenth, after the warm-up: what grows all along has grown in the first third."""
    values = [value for value in means if value == value]
    tenth = len(values) // 10
    return median(values[tenth : tenth + max(MIN_THIRD_VALUES, tenth)])
