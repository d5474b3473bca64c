"""Two runs side by side: how much slower or faster, whether that is more than noise, what explains it, what changed.

Speeds are compared by steps that did work, warm-up left out; start-up, evaluation and checkpoints are shown apart.
Pure: two reports in, one comparison out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

from monitor.model.changes import Change, changes
from monitor.model.report import Curve, Report
from monitor.model.work import Work, work_of
from monitor.units import share

WARM_UP = 0.1  # of a run's first buckets, left out: compilation, caches, autotuning
ENOUGH = 8  # buckets of steps on each side, before anything is said about noise
SIGMAS = 3.0  # beyond three standard errors of the difference of medians chance does not reach in 1,000 comparisons
MAD_TO_SIGMA = 1.4826  # of a normal distribution
MEDIAN_ERROR = 1.2533  # the standard error of a median, over that of a mean
SAME_WORK = 0.01  # tokens or samples a step that differ by more are different work

HOST_ONLY = "host clock only"  # of a run on a GPU
SKIPPED = 0.02  # of the steps: runs whose shares of skipped steps differ by more are compared by steps that worked too


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a comparison."""

    report: Report
    step_seconds: Curve


@dataclass(frozen=True, slots=True)
class PhaseChange:
    name: str
    before: float | None  # mean seconds a step, over all steps
    after: float | None
    explains: float | None  # share of the difference, for the same work


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` against `before`. `slower` is the ratio of the time for the same work: 2.1 is 2.1 times slower."""

    before: str | None
    after: str | None
    per: str  # step | token | sample: the work that the ratio is for
    slower: float | None = None
    slower_a_success: float | None = None  # the same by all time in steps over the steps that did work
    step_seconds: tuple[float | None, float | None] = (None, None)
    tokens_per_second: tuple[float | None, float | None] = (None, None)
    samples_per_second: tuple[float | None, float | None] = (None, None)
    more_than_noise: bool | None = None  # None: too few steps to say
    noise: str = ""  # the test and its outcome, in words
    phases: list[PhaseChange] = field(default_factory=list)
    wall: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    cost: tuple[float | None, float | None] = (None, None)
    metrics: dict[str, tuple[float | str | None, float | str | None]] = field(default_factory=dict)
    changed: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    work: tuple[Work, Work] = (Work(), Work())


def compare(before: Side, after: Side) -> Comparison:
    """How `after` differs from `before`."""
    one, two = before.report, after.report
    seconds = (_usual(before.step_seconds), _usual(after.step_seconds))
    works = (work_of(one), work_of(two))
    per, amounts = _common(*works)
    slower = None
    if seconds[0] and seconds[1]:
        slower = (seconds[1] / amounts[1]) / (seconds[0] / amounts[0])
    successes = (_success_seconds(one), _success_seconds(two))
    noise = _noise(before.step_seconds, after.step_seconds)
    return Comparison(
        one.run.id,
        two.run.id,
        per,
        slower,
        successes[1] / successes[0] * amounts[0] / amounts[1] if successes[0] and successes[1] else None,
        seconds,
        (one.throughput.tokens_per_second, two.throughput.tokens_per_second),
        (one.throughput.samples_per_second, two.throughput.samples_per_second),
        *noise,
        _phases(one, two, amounts),
        _wall(one, two),
        (one.progress.cost, two.progress.cost),
        {name: (one.metrics[name].last, two.metrics[name].last) for name in one.metrics if name in two.metrics},
        changes(one, two),
        _warnings(one, two, per, works),
        works,
    )


def _settled(curve: Curve) -> list[float]:
    values = [each for each in curve.mean if each == each]
    return values[math.ceil(WARM_UP * len(values)) :] if len(values) > 2 else values


def _usual(curve: Curve) -> float | None:
    values = _settled(curve)
    return median(values) if values else None


def _noise(before: Curve, after: Curve) -> tuple[bool | None, str]:
    """Whether the usual step differs by more than the spread of the steps can make it differ."""
    one, two = _settled(before), _settled(after)
    if min(len(one), len(two)) < ENOUGH:
        return None, "too few steps to tell a difference from noise"
    error = math.hypot(_error(one), _error(two))
    difference = abs(median(two) - median(one))
    beyond = difference > SIGMAS * error and difference > 0
    sigmas = f"{difference / error:.1f}" if error else "many"
    return beyond, f"medians over stretches of steps differ by {sigmas} standard errors (robust, from MAD; 3 count)"


def _error(values: list[float]) -> float:
    usual = median(values)
    sigma = MAD_TO_SIGMA * median([abs(each - usual) for each in values])
    return MEDIAN_ERROR * sigma / math.sqrt(len(values))


def _common(one: Work, two: Work) -> tuple[str, tuple[float, float]]:
    """What to measure by: tokens or samples a step where both runs count them and do not do the same, else steps."""
    for per, before, after in (("token", one.tokens, two.tokens), ("sample", one.samples, two.samples)):
        if before and after:
            if abs(after / before - 1) <= SAME_WORK:
                break
            return per, (before, after)
    return "step", (1.0, 1.0)


def _success_seconds(report: Report) -> float | None:
    """Seconds in steps for each step that did work."""
    done = report.progress.steps_ok
    return sum(row.mean * row.count for row in report.phases) / done if done and report.phases else None


def skipped_share(report: Report) -> float:
    """The share of steps that did no work."""
    return report.progress.steps_skipped / max(1, report.progress.steps_ok + report.progress.steps_skipped)


def _phases(one: Report, two: Report, amounts: tuple[float, float]) -> list[PhaseChange]:
    """Each phase's mean over all steps, and how much of the difference it makes; the largest part first.

    Args:
        amounts: the work a step of both: what a phase explains is told of the time for the same work.
    """
    if _clock(one) != _clock(two) or HOST_ONLY in (_clock(one), _clock(two)):
        return []  # what the host waited for is no measure of what a device took
    before, after = _means(one), _means(two)
    grown = {
        name: after.get(name, 0.0) / amounts[1] - before.get(name, 0.0) / amounts[0]
        for name in dict.fromkeys([*before, *after])
    }
    whole = sum(grown.values())
    rows = [
        PhaseChange(name, before.get(name), after.get(name), each / whole if whole else None)
        for name, each in grown.items()
    ]
    return sorted(rows, key=lambda row: -abs(grown[row.name]))


def _clock(report: Report) -> str:
    """By which clock the phases are told."""
    cuda = any(row.clock == "cuda" for row in report.phases)
    return "cuda" if cuda else "host" if report.device is None else HOST_ONLY


def _means(report: Report) -> dict[str, float]:
    steps = report.progress.steps_ok + report.progress.steps_skipped
    return {row.name: row.mean * row.count / steps for row in report.phases} if steps else {}


def _wall(one: Report, two: Report) -> dict[str, tuple[float | None, float | None]]:
    rows: dict[str, tuple[float | None, float | None]] = {
        name: (getattr(one.wall, name), getattr(two.wall, name))
        for name in ("total", "startup", "steps", "between_steps", "teardown")
    }
    for name in dict.fromkeys([*one.wall.spans, *two.wall.spans]):
        rows[name] = (one.wall.spans.get(name), two.wall.spans.get(name))
    return rows


def _warnings(one: Report, two: Report, per: str, works: tuple[Work, Work]) -> list[str]:
    said = []
    before, after = (work.tokens if per == "token" else work.samples for work in works)
    if per != "step" and before and after:
        said.append(f"{per}s a step differ: {before:.4g} and {after:.4g}; speeds are compared by {per}")
    clocks = [_clock(report) for report in (one, two)]
    if clocks[0] != clocks[1] or HOST_ONLY in clocks:
        said.append(f"phases are not compared: theirs are told by {clocks[0]} and {clocks[1]}")
    heavier = heaviness(*works)
    if heavier is not None and abs(heavier - 1) > SAME_WORK:
        said.append(f"a token takes {heavier:.2f}x the arithmetic that it took before: it is supposed to take longer")
    if abs(skipped_share(one) - skipped_share(two)) > SKIPPED:
        said.append(
            f"steps that did no work: {share(skipped_share(one))} and {share(skipped_share(two))};"
            " more steps that work make a run slower, and better"
        )
    for report in (one, two):
        if report.outcome.state == "running":
            said.append(f"{report.run.id} still runs")
    return said


def heaviness(before: Work, after: Work) -> float | None:
    """How many times the arithmetic of a token (or of a parameter) the later run does; None where that is unknown."""
    if before.flops_a_token and after.flops_a_token:
        return after.flops_a_token / before.flops_a_token
    if before.parameters and after.parameters:
        return after.parameters / before.parameters
    return None
