"""Two runs side by side: how much slower or faster, whether that is more than noise, what explains it, what changed.

Speeds are compared by steps that did work, warm-up left out; start-up, evaluation and checkpoints are shown apart.
Pure: two reports in, one comparison out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, pstdev, stdev

from monitor.model.comparison.changes import Change, find_changes
from monitor.model.comparison.likeness import differences
from monitor.model.compute.flops import StepWork, work_of, work_ratio
from monitor.model.report import Report
from monitor.model.steps.baseline import slow_limit
from monitor.model.steps.series import Curve
from monitor.units import share

WARM_UP_SHARE = 0.1  # of a run's buckets, the first ones, left out: compilation, caches, autotuning
MIN_BUCKETS = 8  # buckets of steps on each side, before anything is said about noise
NOISE_SIGMAS = 3.0  # standard errors of the difference: by chance more in fewer than 3 of 1,000 comparisons
STRETCHES = 8  # parts of a run, whose means show how much the machine itself varied
MAX_WORK_DIFFERENCE = 0.01  # tokens or samples a step that differ by more are different work

HOST_ONLY = "host clock only"  # of a run on a GPU
# Of the steps: where the shares of skipped steps differ by more, a warning says so.
MAX_SKIPPED_DIFFERENCE = 0.02


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
    slower_a_success: float | None = None  # the same ratio of all time in steps to the steps that did work
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
    unlike: list[Change] = field(default_factory=list)  # what makes one speed no baseline for the other
    warnings: list[str] = field(default_factory=list)
    work: tuple[StepWork, StepWork] = (StepWork(), StepWork())


def compare_runs(before: Side, after: Side) -> Comparison:
    """Return how `after` differs from `before`."""
    one, two = before.report, after.report
    seconds = (_typical_mean(before.step_seconds), _typical_mean(after.step_seconds))
    works = (work_of(one), work_of(two))
    per, amounts = _common_unit(*works)
    slower = None
    if seconds[0] and seconds[1]:
        slower = (seconds[1] / amounts[1]) / (seconds[0] / amounts[0])
    successes = (_success_seconds(one), _success_seconds(two))
    more_than_noise, noise = _noise(before.step_seconds, after.step_seconds)
    slower_a_success = None
    if successes[0] and successes[1]:
        slower_a_success = successes[1] / successes[0] * amounts[0] / amounts[1]
    return Comparison(
        before=one.run.id,
        after=two.run.id,
        per=per,
        slower=slower,
        slower_a_success=slower_a_success,
        step_seconds=seconds,
        tokens_per_second=(one.throughput.tokens_per_second, two.throughput.tokens_per_second),
        samples_per_second=(one.throughput.samples_per_second, two.throughput.samples_per_second),
        more_than_noise=more_than_noise,
        noise=noise,
        phases=_phase_changes(one, two, amounts),
        wall=_wall_changes(one, two),
        cost=(one.progress.cost, two.progress.cost),
        metrics={name: (one.metrics[name].last, two.metrics[name].last) for name in one.metrics if name in two.metrics},
        changed=find_changes(one, two),
        unlike=[Change(*difference) for difference in differences(one, two)],
        warnings=_warnings(one, two, per, works),
        work=works,
    )


def _known_means(curve: Curve) -> list[float]:
    values = [mean for mean in curve.mean if mean == mean]
    return values[math.ceil(WARM_UP_SHARE * len(values)) :] if len(values) > 2 else values


def _typical_mean(curve: Curve) -> float | None:
    """Return the mean without slow steps, as for the phases: a median would hide what every tenth step takes longer."""
    values = _usual_means(curve)
    return fmean(values) if values else None


def _usual_means(curve: Curve) -> list[float]:
    values = _known_means(curve)
    limit = slow_limit(values) if len(values) >= MIN_BUCKETS else math.inf
    return [value for value in values if value <= limit]


def _noise(before: Curve, after: Curve) -> tuple[bool | None, str]:
    """Return whether the typical steps differ by more than noise (None: too few steps), and the test in words."""
    one, two = _usual_means(before), _usual_means(after)
    if min(len(one), len(two)) < MIN_BUCKETS:
        return None, "too few steps to judge"
    error = math.hypot(_standard_error(one), _standard_error(two))
    difference = abs(fmean(two) - fmean(one))
    beyond = difference > NOISE_SIGMAS * error and difference > 0
    sigmas = f"{difference / error:.1f}" if error else "many"
    verdict = "significant" if beyond else "not significant"
    varied = " and ".join(share(pstdev(_stretch_means(values)) / (fmean(values) or 1.0)) for values in (one, two))
    return beyond, f"{verdict} ({sigmas} sigma, threshold {NOISE_SIGMAS:g}); stretches of one run vary by {varied}"


def _standard_error(values: list[float]) -> float:
    """Return the standard error of the mean: by single steps, or by stretches where neighbors come and go."""
    stretches = _stretch_means(values)
    return max(stdev(rows) / math.sqrt(len(rows)) for rows in (values, stretches))


def _stretch_means(values: list[float]) -> list[float]:
    """Return the means of consecutive parts of a run, of about equal length."""
    edges = [at * len(values) // STRETCHES for at in range(STRETCHES + 1)]
    return [fmean(values[first:end]) for first, end in pairwise(edges)]


def _common_unit(one: StepWork, two: StepWork) -> tuple[str, tuple[float, float]]:
    """Return the unit to compare by: tokens or samples a step where both runs count them and differ, else steps."""
    for per, before, after in (("token", one.tokens, two.tokens), ("sample", one.samples, two.samples)):
        if before and after:
            if abs(after / before - 1) <= MAX_WORK_DIFFERENCE:
                break
            return per, (before, after)
    return "step", (1.0, 1.0)


def _success_seconds(report: Report) -> float | None:
    """Return all seconds in steps divided by the steps that did work; None: unknown."""
    done = report.progress.steps_ok
    return sum(row.mean * row.count for row in report.phases) / done if done and report.phases else None


def skipped_share(report: Report) -> float:
    """Return the share of steps that did no work."""
    return report.progress.steps_skipped / max(1, report.progress.steps_ok + report.progress.steps_skipped)


def _phase_changes(one: Report, two: Report, amounts: tuple[float, float]) -> list[PhaseChange]:
    """Return each phase's mean over all steps, one-offs and slow steps left out, and its part of the difference.

    The largest part comes first.

    Args:
        amounts: the work a step of both runs: the difference is that of the time for the same work.
    """
    if _phase_clock(one) != _phase_clock(two) or HOST_ONLY in (_phase_clock(one), _phase_clock(two)):
        return []  # the time that the host waits does not measure the device's work
    before, after = _means(one), _means(two)
    grown = {
        name: after.get(name, 0.0) / amounts[1] - before.get(name, 0.0) / amounts[0]
        for name in dict.fromkeys([*before, *after])
    }
    whole = sum(grown.values())
    rows = [
        PhaseChange(
            name=name, before=before.get(name), after=after.get(name), explains=change / whole if whole else None
        )
        for name, change in grown.items()
    ]
    return sorted(rows, key=lambda row: -abs(grown[row.name]))


def _phase_clock(report: Report) -> str:
    """Return the clock that measured the phases."""
    cuda = any(row.clock == "cuda" for row in report.phases)
    return "cuda" if cuda else "host" if report.device is None else HOST_ONLY


def _means(report: Report) -> dict[str, float]:
    steps = report.progress.steps_ok + report.progress.steps_skipped
    return {row.name: row.habit / steps for row in report.phases} if steps else {}


def _wall_changes(one: Report, two: Report) -> dict[str, tuple[float | None, float | None]]:
    rows: dict[str, tuple[float | None, float | None]] = {
        name: (getattr(one.wall, name), getattr(two.wall, name))
        for name in ("total", "startup", "steps", "between_steps", "teardown")
    }
    for name in dict.fromkeys([*one.wall.spans, *two.wall.spans]):
        rows[name] = (one.wall.spans.get(name), two.wall.spans.get(name))
    return rows


def _warnings(one: Report, two: Report, per: str, works: tuple[StepWork, StepWork]) -> list[str]:
    warnings = []
    before, after = (work.tokens if per == "token" else work.samples for work in works)
    if per != "step" and before and after:
        warnings.append(f"{per}s a step differ ({before:.4g} and {after:.4g}): speeds are compared per {per}")
    clocks = [_phase_clock(report) for report in (one, two)]
    if clocks[0] != clocks[1] or HOST_ONLY in clocks:
        warnings.append(f"phases not compared: measured by {clocks[0]} and {clocks[1]}")
    heavier = work_ratio(*works)
    if heavier is not None and abs(heavier - 1) > MAX_WORK_DIFFERENCE:
        warnings.append(f"a token takes {heavier:.2f}x the arithmetic of the earlier run")
    if abs(skipped_share(one) - skipped_share(two)) > MAX_SKIPPED_DIFFERENCE:
        warnings.append(
            f"skipped steps: {share(skipped_share(one))} and {share(skipped_share(two))};"
            " with fewer of them a run is slower but does more"
        )
    for report in (one, two):
        if report.outcome.state == "running":
            warnings.append(f"{report.run.id} is still running")
    return warnings
