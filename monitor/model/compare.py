"""Two runs side by side: how much slower or faster, whether that is more than noise, what explains it, what changed.

Speeds are compared by steps that did work, warm-up left out; start-up, evaluation and checkpoints are shown apart.
Pure: two reports in, one comparison out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from monitor.model.report import Curve, Report

WARM_UP = 0.1  # of a run's first buckets, left out: compilation, caches, autotuning
ENOUGH = 8  # buckets of steps on each side, before anything is said about noise
SIGMAS = 3.0  # beyond three standard errors of the difference of medians chance does not reach in 1,000 comparisons
MAD_TO_SIGMA = 1.4826  # of a normal distribution
MEDIAN_ERROR = 1.2533  # the standard error of a median, over that of a mean
SAME_WORK = 0.01  # tokens or samples a step that differ by more are different work

# What differs between any two runs, and explains nothing.
IDLE_FACTS = frozenset(("cwd", "command", "tags", "devices", "compile"))


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
    explains: float | None  # share of the difference of step time


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, version or circumstance that is not the same."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` against `before`. `slower` is the ratio of the time for the same work: 2.1 is 2.1 times slower."""

    before: str | None
    after: str | None
    per: str  # step | token | sample: the work that the ratio is for
    slower: float | None = None
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


def compare(before: Side, after: Side) -> Comparison:
    """How `after` differs from `before`."""
    one, two = before.report, after.report
    seconds = (_usual(before.step_seconds), _usual(after.step_seconds))
    per, work = _work(one, two)
    slower = None
    if seconds[0] and seconds[1] and work[0] and work[1]:
        slower = (seconds[1] / work[1]) / (seconds[0] / work[0])
    noise = _noise(before.step_seconds, after.step_seconds)
    return Comparison(
        one.run.id,
        two.run.id,
        per,
        slower,
        seconds,
        (one.throughput.tokens_per_second, two.throughput.tokens_per_second),
        (one.throughput.samples_per_second, two.throughput.samples_per_second),
        *noise,
        _phases(one, two),
        _wall(one, two),
        (one.progress.cost, two.progress.cost),
        {name: (one.metrics[name].last, two.metrics[name].last) for name in one.metrics if name in two.metrics},
        changes(one, two),
        _warnings(one, two, per, work),
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


def _work(one: Report, two: Report) -> tuple[str, tuple[float | None, float | None]]:
    """What to measure by: tokens or samples a step where both runs count them and do not do the same, else steps."""
    for per, name in (("token", "tokens_per_second"), ("sample", "samples_per_second")):
        amounts = (_a_step(one, name), _a_step(two, name))
        if amounts[0] and amounts[1]:
            if abs(amounts[1] / amounts[0] - 1) <= SAME_WORK:
                return "step", (1.0, 1.0)
            return per, amounts
    return "step", (1.0, 1.0)


def _a_step(report: Report, rate: str) -> float | None:
    per_second, steps = getattr(report.throughput, rate), report.throughput.steps_per_second
    return per_second / steps if per_second and steps else None


def _phases(one: Report, two: Report) -> list[PhaseChange]:
    """Each phase's mean over all steps, and how much of the difference it makes; the largest part first."""
    before, after = _means(one), _means(two)
    whole = sum(after.values()) - sum(before.values())
    rows = []
    for name in dict.fromkeys([*before, *after]):
        difference = after.get(name, 0.0) - before.get(name, 0.0)
        rows.append(PhaseChange(name, before.get(name), after.get(name), difference / whole if whole else None))
    return sorted(rows, key=lambda row: -abs((row.after or 0.0) - (row.before or 0.0)))


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


def changes(one: Report, two: Report) -> list[Change]:
    """Arguments, settings, versions, environment, commit and hardware that are not the same."""
    rows = []
    before, after = _flat(one.run.facts), _flat(two.run.facts)
    before["command"], after["command"] = " ".join(one.run.command) or None, " ".join(two.run.command) or None
    before["host"], after["host"] = one.run.host, two.run.host
    before["ranks"], after["ranks"] = one.run.ranks, two.run.ranks
    before["gpus"] = ", ".join(gpu.name or "?" for gpu in one.gpus) or None
    after["gpus"] = ", ".join(gpu.name or "?" for gpu in two.gpus) or None
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            rows.append(Change(name, before.get(name), after.get(name)))
    return rows


def _flat(facts: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in facts.items():
        if not prefix and name in IDLE_FACTS:
            continue
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{name}."))
        else:
            out[f"{prefix}{name}"] = value
    return out


def _warnings(one: Report, two: Report, per: str, work: tuple[float | None, float | None]) -> list[str]:
    said = []
    if per != "step" and work[0] and work[1]:
        said.append(f"{per}s a step differ: {work[0]:.4g} and {work[1]:.4g}; speeds are compared by {per}")
    skipped = [r.progress.steps_skipped / max(1, r.progress.steps_ok + r.progress.steps_skipped) for r in (one, two)]
    if abs(skipped[0] - skipped[1]) > 0.02:
        said.append(
            f"steps that did no work: {100 * skipped[0]:.0f} % and {100 * skipped[1]:.0f} %;"
            " more steps that work make a run slower, and better"
        )
    for report in (one, two):
        if report.outcome.state == "running":
            said.append(f"{report.run.id} still runs")
    return said
