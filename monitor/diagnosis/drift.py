"""A creeping or lasting loss of speed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.neighbours import MOSTLY, crowded, held_up
from monitor.model.pace import Pace
from monitor.model.report import Finding
from monitor.model.series import Series
from monitor.units import brief, share

ENOUGH = 100  # steps
SLOWER = 1.20  # the last third against the first: past the ups and downs of a shared box's quarter hours
AGREE = 0.8  # of the buckets of the last third lie above the usual of the first: it lasts, and is no spike
BETWEEN = "between steps"  # the sampler's name for it, too
BEYOND_NEIGHBOURS = 2.0  # times slower; less may be others on a crowded machine, whose share is never known exactly
OTHER_WORK = 0.2  # a phase came to, or went from, so many of the steps: they do something else, and may take longer
LEAST_SECONDS = 0.005  # a step; less is the scheduler's
STRETCHES = 8  # of the device's, in each third
NEWEST = 20  # steps that tell whether it is over
AGAIN = 1.10  # of the first third: the newest steps are as fast as those were; half of what makes a drift


def slow_drift(evidence: Evidence) -> Finding | None:
    """Steps got slower over the run and stayed so, beyond what their tokens explain."""
    if evidence.steps < ENOUGH or not _told_often_enough(evidence):
        return None
    early, late, agree = _ends(_step_seconds(evidence))
    between = False
    if not _slower(early, late, agree):
        if evidence.device is not None:
            return None  # the device's steps hold what lies between them
        early, late, agree = _ends(_periods(evidence.state.main.pace))
        if not _slower(early, late, agree):
            return None
        between = True  # the steps take what they took; what lies between them grows
    if _is_other_work(evidence):
        return None
    held = held_up(evidence)
    if held is None or late < SLOWER * early * held:
        return None  # the machine was taken away, or may have been
    tokens = evidence.state.main.tokens.digested()
    if tokens.count > ENOUGH // 2:
        fewer, more, _ = _ends(tokens.series.curve().mean)
        if fewer > 0 and late / early < SLOWER * more / fewer:
            return None  # the steps have more work
    lost = _lost(evidence, early, between)
    if between and lost <= 0:
        return None  # what grows there has a name of its own: evaluations, checkpoints, logging
    grown = {name: late_ - early_ for name, (early_, late_, _) in _phases(evidence).items()}
    culprit = BETWEEN if between else max(grown, key=lambda name: grown[name], default=None)
    newest = _newest(evidence, between)
    over = newest <= AGAIN * early
    lines = [f"first third {brief(early)} a step, last third {brief(late)}"]
    lines += [f"the last {NEWEST} steps {brief(newest)} a step: it is over"] if over else []
    if between:
        lines += evidence.places(BETWEEN)
    crowd = crowded(evidence) if late < BEYOND_NEIGHBOURS * early else crowded(evidence, MOSTLY)
    lines += [crowd] if crowd else []
    if culprit is not None and grown.get(culprit, 0.0) > 0:
        lines.append(f"{culprit} grew most: by {brief(grown[culprit])} a step")
    return Finding(
        "slow-drift",
        "info" if crowd or over else "warning",
        f"Steps {'had' if over else 'have'} become {share(late / early - 1)} slower"
        + (", in what lies between them" if between else f", in {culprit}" if culprit else ""),
        lines,
        "Look for what grows with the run: a list that is kept, sequence lengths, a cache, a filling disk; and for"
        " clocks that fell (heat, power) or new neighbours on the box.",
        lost,
        culprit=culprit,
        over=over,
    )


def _told_often_enough(evidence: Evidence) -> bool:
    """Whether enough stretches were timed: the device's clock tells of some steps together, and of each alike."""
    lane = evidence.state.main.device
    return evidence.device is None or evidence.host_only or lane.stretches >= 3 * STRETCHES


def _step_seconds(evidence: Evidence) -> Sequence[float]:
    """Seconds a step over the run: by the device's clock; by the marks of the run's pace where that is not told; by the
    steps themselves where no device is used.
    """
    main = evidence.state.main
    if evidence.device is None:
        return main.step_seconds.digested().series.curve().mean
    if evidence.host_only:  # in long stretches: a host waits for the device in one step of many
        return _periods(main.pace, 3 * STRETCHES)
    return main.device.paces.digested().series.curve().mean


def _newest(evidence: Evidence, between: bool) -> float:
    """The usual seconds of the newest steps, or from the end of one to that of the next."""
    steps = evidence.state.main.latest[-NEWEST:]
    if evidence.device is not None:  # a host runs ahead, and waits for many steps in one
        return (steps[-1].start + steps[-1].duration - steps[0].start) / len(steps)
    if not between:
        return median(each.duration for each in steps)
    ends = [each.start + each.duration for each in steps]
    return median(after - before for before, after in pairwise(ends))


def _is_other_work(evidence: Evidence) -> bool:
    """Whether the late steps are of another kind than the early ones: of another stage, or with other phases."""
    main = evidence.state.main
    if len({kind.partition("\n")[2] for kind in main.baselines}) > 1:
        return True  # a curriculum: its stages have paces of their own
    steps = main.step_seconds.digested().series
    early, late = _counts(steps, steps)
    for stats in main.phases.values():
        first, last = _counts(stats.seconds.digested().series, steps)
        if abs(last / max(1, late) - first / max(1, early)) > OTHER_WORK:
            return True
    return False


def _counts(series: Series, steps: Series) -> tuple[int, int]:
    """How many values lie in the first and in the last third of the steps."""
    begin, third = steps.index[0] * steps.width, (steps.newest - steps.index[0] * steps.width) / 3
    rows = [(index * series.width, count) for index, count in zip(series.index, series.count, strict=True)]
    first = sum(count for at, count in rows if at < begin + third)
    return first, sum(count for at, count in rows if at >= begin + 2 * third)


def _lost(evidence: Evidence, early: float, between: bool) -> float:
    """The share of the elapsed time that lies beyond the speed of the first third."""
    main, wall = evidence.state.main, evidence.report.wall
    spent = wall.steps + wall.between_steps if between else wall.steps
    return evidence.of_wall(max(0.0, spent - early * main.step_seconds.digested().count))


def _slower(early: float, late: float, agree: float) -> bool:
    return late >= SLOWER * early and late - early >= LEAST_SECONDS and agree >= AGREE


def _phases(evidence: Evidence) -> dict[str, tuple[float, float, float]]:
    if evidence.host_only:
        return {}  # which of the device's phases grew is not known
    table = evidence.state.main.phases.items()
    if evidence.device is not None:
        return {
            name: _ends(column.digested().series.curve().mean)
            for name, column in evidence.state.main.device.phases.items()
        }
    return {name: _ends(stats.seconds.digested().series.curve().mean) for name, stats in table}


def _periods(pace: Pace, most: int | None = None) -> list[float]:
    """Seconds from the end of a step to that of the next, by the marks along the run; in so many parts at most."""
    marks = pace.whole[1:]  # the first one lies before a step
    if most is not None:
        marks = marks[:: max(1, len(marks) // most)]
    return [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(marks) if b[1] > a[1]]


def _ends(means: Sequence[float]) -> tuple[float, float, float]:
    """The usual value of the first third (its first tenth, the warm-up, left out) and of the last, and how much of the
    last lies above the first.
    """
    values = [each for each in means if each == each]
    third = len(values) // 3
    if third < 3:
        return 0.0, 0.0, 0.0
    first, last = values[len(values) // 10 : third + len(values) // 10], values[-third:]
    early = median(first)
    return early, median(last), sum(each > early for each in last) / len(last)
