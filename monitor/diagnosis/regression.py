"""Slower than the last comparable run of the same command, on equal work. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.neighbours import cpu_starved
from monitor.model.changes import Change
from monitor.model.comparable import same_amount
from monitor.model.compare import ENOUGH, SKIPPED, Comparison, Side, compare, heaviness, skipped_share
from monitor.model.curves import step_seconds
from monitor.model.report import Curve, Finding
from monitor.units import age, duration, rate, share

STEPS = 30  # of this run; the first of them are warm-up
# From one run to the next clocks, caches and neighbours move the speed of an unchanged program by a tenth and more;
# a quarter is beyond that, and worth a look.
SLOWER = 1.25
FAR_SLOWER = 2.0  # worth a warning also where nothing that is known has changed
HEAVIER = 1.02  # times the arithmetic, or the length of the sequences: that is supposed to take longer
WORTH_NAMING = 0.1  # of the difference: phases that explain less are not told
NAMED = 6  # changes

# What a run is called and where it writes explains no speed.
_IDLE = re.compile(
    r"seed|(?:^|[-_.])(?:dir|name|id|output|path|time)$|learning_rate|(?:^|-)lr$|run_name|push_to_hub", re.I
)


@dataclass(frozen=True, slots=True)
class Regression:
    """What the comparison says where it counts."""

    slower: float  # times, on equal work
    told: Comparison


def regressed(evidence: Evidence) -> Finding | None:
    """The finding, where an earlier run is at hand."""
    before = evidence.before
    if before is None or evidence.steps < STEPS:
        return None
    found = regression(before, Side(evidence.report, step_seconds(evidence.state)))
    return None if found is None else _finding(evidence, before, found)


def regression(before: Side, after: Side) -> Regression | None:
    """How much slower `after` is, where that is more than noise and no more work explains it."""
    curves = _same_stretch(before.step_seconds, after.step_seconds)
    if curves is None:
        return None
    told = compare(Side(before.report, curves[0]), Side(after.report, curves[1]))
    slower = told.slower
    if slower is None or not told.more_than_noise or _does_more(before, after, told):
        return None
    if abs(skipped_share(before.report) - skipped_share(after.report)) > SKIPPED:
        # Steps that now do their work are no loss: only what makes those slower counts.
        slower = min(slower, told.slower_a_success or slower)
    return Regression(slower, told) if slower >= SLOWER else None


def _same_stretch(one: Curve, other: Curve) -> tuple[Curve, Curve] | None:
    """Both runs where both were: the first hundred steps are no measure of ten thousand. None: too few, so far."""
    if not one.x or not other.x:
        return None
    first, last = max(one.x[0], other.x[0]), min(one.end or one.x[-1], other.end or other.x[-1])
    if first > last:
        return one, other  # one goes on where the other ended
    cut = [_between(each, first, last) for each in (one, other)]
    return (cut[0], cut[1]) if min(len(each.x) for each in cut) > ENOUGH else None


def _between(curve: Curve, first: float, last: float) -> Curve:
    places = [at for at, x in enumerate(curve.x) if x + curve.width > first and x <= last]
    x, mean, low, high = ([values[at] for at in places] for values in (curve.x, curve.mean, curve.low, curve.high))
    return Curve(x, mean, low, high, curve.width, min(curve.end, last) if curve.end is not None else None)


def _does_more(before: Side, after: Side, told: Comparison) -> bool:
    """Whether the later run does more for what it is measured by: then it is supposed to be slower."""
    one, two = told.work
    heavier = heaviness(one, two)
    if heavier is not None and heavier > HEAVIER:
        return True
    exact = one.flops_a_token and two.flops_a_token
    if not exact and one.length and two.length and two.length > HEAVIER * one.length:
        return True
    counted = (one.tokens and two.tokens) or (one.samples and two.samples)
    return not counted and not same_amount(before.report, after.report)


def _finding(evidence: Evidence, before: Side, found: Regression) -> Finding:
    told = found.told
    changed = _worth_naming(told.changed)
    far = found.slower >= FAR_SLOWER
    # Where others fill the machine, it is most likely their doing, and told as such.
    grave = (changed and far) if cpu_starved(evidence) is not None else (changed or far)
    per = "" if told.per == "step" else f" a {told.per}"
    # The start-up is no part of it, nor what lies between the steps.
    in_steps = evidence.of_wall(evidence.report.wall.steps)
    return Finding(
        "regressed",
        "warning" if grave else "info",
        f"{found.slower:.1f}x slower{per} than {_called(evidence, before)}",
        _evidence(evidence, before, told, changed),
        f"Look at what changed beside the phase that grew; change one thing back, and see:"
        f" trainmon compare {before.report.run.id} {evidence.report.run.id}",
        in_steps * (1 - 1 / found.slower),
        culprit=_culprit(told),
    )


def _called(evidence: Evidence, before: Side) -> str:
    """`rft-12`, 26 h before: the name of the run, and how long ago it was."""
    run, own = before.report.run, evidence.report.run
    name = f"`{run.id or run.name}`"
    if run.started is None or own.started is None:
        return name
    return f"{name}, {age(max(0.0, own.started - run.started))} before"


def _culprit(told: Comparison) -> str | None:
    first = told.phases[0] if told.phases else None
    return first.name if first is not None and (first.explains or 0.0) > 0.5 else None


def _evidence(evidence: Evidence, before: Side, told: Comparison, changed: list[Change]) -> list[str]:
    lines = [_speed(told)]
    shares = [{row.name: row.share for row in side.phases} for side in (before.report, evidence.report)]
    for phase in told.phases[:3]:
        if phase.explains is not None and phase.explains >= WORTH_NAMING:
            part = f"{share(shares[0].get(phase.name, 0.0))} → {share(shares[1].get(phase.name, 0.0))} of step time"
            lines.append(f"{phase.name}: {part}; {share(min(1.0, phase.explains))} of the difference")
    lines += [f"{each.name}: {_value(each.before)} → {_value(each.after)}" for each in changed[:NAMED]]
    if len(changed) > NAMED:
        lines.append(f"and {len(changed) - NAMED} more that changed")
    return lines if changed else [*lines, "nothing that is known of the two has changed"]


def _speed(told: Comparison) -> str:
    for per, (one, two), unit in (
        ("token", told.tokens_per_second, "tok/s"),
        ("sample", told.samples_per_second, "samples/s"),
    ):
        if told.per == per and one is not None and two is not None:
            return f"{rate(one, unit)} → {rate(two, unit)}"
    one, two = told.step_seconds
    return f"usual step {duration(one)} → {duration(two)}"


def _worth_naming(changed: list[Change]) -> list[Change]:
    """Without names and places, and without what is known of one of the two only, unless it is an argument."""
    kept = [each for each in changed if not _IDLE.search(each.name)]
    sure = [each for each in kept if each.name.startswith("-") or None not in (each.before, each.after)]
    return sure + [each for each in kept if each.name.startswith("model called")]


def _value(value: object) -> str:
    return "not given" if value is None else str(value)[:80]
