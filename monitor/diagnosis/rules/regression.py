"""Slower than the last run of the same command, and slower than expected. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.host_limits import cpu_starved, crowd_line
from monitor.model.comparison.changes import Change
from monitor.model.comparison.compare import MAX_SKIPPED_DIFFERENCE, Comparison, Side, skipped_share
from monitor.model.comparison.last_run import compare_same_steps, does_more
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.report import Finding
from monitor.units import age, duration, rate, share

# Slower than the last comparable run of the same command, on equal work.

MIN_REGRESSION_STEPS = 30  # of this run; the first of them are warm-up
# From one run to the next clocks, caches and neighbors move the speed of an unchanged program by a tenth and more;
# a quarter is more than that.
MIN_REGRESSION = 1.25
MIN_UNEXPLAINED_REGRESSION = 2.0  # worth a warning also where nothing that is known has changed
MIN_EXPLAINED_SHARE = 0.1  # of the difference: phases that explain less are not named
MIN_CULPRIT_SHARE = 0.5  # of the difference that the culprit explains
MOST_CHANGES, MAX_GROWN_PHASES = 6, 3  # named
NO_CHANGE = "no known setting changed"
CONSOLE = "console"  # the source of steps that a program prints
SETTINGS_UNKNOWN = "steps read from the console: settings, backend and versions of both runs are unknown"

# Names and output paths of a run do not explain its speed.
_IRRELEVANT = re.compile(
    r"seed|(?:^|[-_.])(?:dir|name|id|output|path|time)$|learning_rate|(?:^|-)lr$|run_name|push_to_hub", re.I
)


@dataclass(frozen=True, slots=True)
class Regression:
    """A comparison that shows a regression: `slower` is times as long, on equal work."""

    slower: float
    comparison: Comparison


# After others: it does not say why the run is slower.
@rule("regressed", Family.PROGRESS, priority=20)
def regressed(evidence: Evidence) -> Finding | None:
    """Find a run slower than the last comparable run of the same command, where that is at hand."""
    before = evidence.previous
    if before is None or evidence.steps < MIN_REGRESSION_STEPS:
        return None
    slower_run = regression(before, Side(evidence.report, loop_time(evidence.state, evidence.report)))
    if slower_run is None:
        return None
    comparison, changes = slower_run.comparison, _relevant_changes(slower_run.comparison.changed)
    far = slower_run.slower >= MIN_UNEXPLAINED_REGRESSION
    # Where others hold the cores, it is most likely their doing. Of a program that only prints no setting is known, so
    # that nothing tells whether it is the same work.
    crowd = crowd_line(evidence)
    is_warning = (changes and far) if crowd or cpu_starved(evidence) is not None else (changes or far)
    is_warning = is_warning and evidence.report.run.source != CONSOLE
    per = "" if comparison.per == "step" else f" per {comparison.per}"
    first = max(comparison.phases, key=lambda part: part.explains or 0.0, default=None)
    return Finding(
        code="regressed",
        severity="warning" if is_warning else "info",
        title=f"Regression: {slower_run.slower:.1f}x slower{per} than {_run_name(evidence, before)}",
        evidence=[*_regression_lines(evidence, before, comparison, changes), *([crowd] if crowd else [])],
        advice="See which phase grew and what changed; change one thing back and compare:"
        f" trainmon compare {before.report.run.id} {evidence.report.run.id}",
        lost_fraction=evidence.wall_part(evidence.report.wall.stepping) * (1 - 1 / slower_run.slower),
        culprit=first.name if first is not None and (first.explains or 0.0) > MIN_CULPRIT_SHARE else None,
    )


def regression(before: Side, after: Side) -> Regression | None:
    """Return how much slower `after` is, where that is more than noise and no more work explains it."""
    comparison = compare_same_steps(before, after)
    slower = comparison.slower
    if slower is None or not comparison.more_than_noise or comparison.unlike:
        return None
    if does_more(before.report, after.report, comparison.work):
        return None
    if abs(skipped_share(before.report) - skipped_share(after.report)) > MAX_SKIPPED_DIFFERENCE:
        # Steps that are no longer skipped are no loss: only slower ones count.
        slower = min(slower, comparison.slower_a_success or slower)
    return Regression(slower, comparison) if slower >= MIN_REGRESSION else None


def _run_name(evidence: Evidence, before: Side) -> str:
    """Return `rft-12`, 26 h before: the name of the run, and how long ago it was."""
    run, own = before.report.run, evidence.report.run
    name = f"`{run.id or run.name}`"
    if run.started is None or own.started is None:
        return name
    return f"{name}, {age(max(0.0, own.started - run.started))} before"


def _regression_lines(evidence: Evidence, before: Side, comparison: Comparison, changes: list[Change]) -> list[str]:
    lines = [_speed_line(comparison)]
    whole = [seconds or 1.0 for seconds in comparison.step_seconds]
    for phase in comparison.phases[:MAX_GROWN_PHASES]:
        if phase.explains is not None and phase.explains >= MIN_EXPLAINED_SHARE:
            shares = [(seconds or 0.0) / of for seconds, of in zip((phase.before, phase.after), whole, strict=True)]
            part = f"{share(shares[0])} → {share(shares[1])} of the loop"
            lines.append(f"{phase.name}: {part}; {share(min(1.0, phase.explains))} of the difference")
    lines += [f"{change.name}: {_value(change.before)} → {_value(change.after)}" for change in changes[:MOST_CHANGES]]
    if len(changes) > MOST_CHANGES:
        lines.append(f"{len(changes) - MOST_CHANGES} more changes")
    if evidence.report.run.source == CONSOLE:
        return [*lines, SETTINGS_UNKNOWN]
    return lines if changes else [*lines, NO_CHANGE]


def _speed_line(comparison: Comparison) -> str:
    for per, (one, two), unit in (
        ("token", comparison.tokens_per_second, "tok/s"),
        ("sample", comparison.samples_per_second, "samples/s"),
    ):
        if comparison.per == per and one is not None and two is not None:
            return f"{rate(one, unit)} → {rate(two, unit)}"
    one, two = comparison.step_seconds
    return f"from step to step {duration(one)} → {duration(two)}"


def _relevant_changes(changed: list[Change]) -> list[Change]:
    """Return changes without names and places, and without what only one run has, unless it is an argument."""
    kept = [change for change in changed if not _IRRELEVANT.search(change.name)]
    sure = [change for change in kept if change.name.startswith("-") or None not in (change.before, change.after)]
    return sure + [change for change in kept if change.name.startswith("model called")]


def _value(value: object) -> str:
    return "not given" if value is None else str(value)[:80]


# Speed compared with the expected one.

MAX_EXPECTED_SHARE = 0.90  # of what was asked for; a tenth is within what batches and neighbors do to a rate


# After others: it does not say why the run is slower than expected.
@rule("below-expected", Family.PROGRESS, priority=20)
def below_expected(evidence: Evidence) -> Finding | None:
    """Find fewer tokens per second than `--expect-tps` asks for."""
    throughput = evidence.report.throughput
    wanted, overall = throughput.expected_tokens_per_second, throughput.tokens_per_second
    recent = throughput.recent.tokens_per_second if evidence.is_running else None
    reached = max(overall or 0.0, recent or 0.0)  # a slow start does not make the run slow
    if not wanted or not overall or not evidence.has_steps() or reached >= MAX_EXPECTED_SHARE * wanted:
        return None
    recently = f"recently {rate(recent, 'tok/s')}; " if recent else ""
    return Finding(
        code="below-expected",
        severity="warning",
        title=f"Below expected speed: {rate(overall, 'tok/s')}, {share(overall / wanted)} of {rate(wanted, 'tok/s')}",
        evidence=[f"{recently}speed since the first step; expected by --expect-tps"],
        advice="See the other findings; check clocks and other programs on the machine, too.",
        lost_fraction=(1 - overall / wanted) * evidence.loop_share,
    )
