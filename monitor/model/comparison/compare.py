"""Two runs side by side: how much slower or faster for the same work, how certainly, what explains it, what changed.

Compared is the time since the first step, everything between steps included, for a unit of work. One-offs (start-up,
first steps, single stops) are shown apart. Pure: two runs in, one comparison out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from monitor.model.comparison.changes import Change, find_changes, unrecorded
from monitor.model.comparison.likeness import differences
from monitor.model.comparison.loop_pace import STEP_UNIT, UNITS, LoopTime, Pace, Stop, pace_of
from monitor.model.compute.flops import StepWork, work_of, work_ratio
from monitor.model.report import Report
from monitor.units import share

MAX_WORK_DIFFERENCE = 0.01  # tokens or samples a step that differ by more are different work
# Times: from one start to the next an unchanged program differs by so much, where no repeats tell that it is more. The
# layout of memory alone moves real programs by some percent (Mytkowicz et al., ASPLOS 2009).
MIN_REPEAT_RATIO = 1.04
MAX_STOP_DISTANCE = 0.02  # of the steps: single stops nearer to each other are at the same place of the program

HOST_ONLY = "host clock only"  # of a run on a GPU
BETWEEN = "between steps"
# Of the steps: where the shares of skipped steps differ by more, a warning says so.
MAX_SKIPPED_DIFFERENCE = 0.02


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a comparison."""

    report: Report
    loop: LoopTime
    repeats: tuple[LoopTime, ...] = ()  # of other runs of the same command, settings and versions


@dataclass(frozen=True, slots=True)
class PhaseChange:
    name: str  # a phase of the steps, a span between them, or the rest
    before: float | None  # mean seconds a step, over all steps
    after: float | None
    explains: float | None  # share of the difference, negative against it; None: no difference is certain


Pair = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` against `before`. `slower` is the ratio of the time for the same work: 2.1 is 2.1 times slower."""

    before: str | None
    after: str | None
    per: str  # token | sample | completion | environment step | step: the work that the ratio is for
    slower: float | None = None
    interval: tuple[float, float] | None = None  # of `slower`; None: too few steps to say
    slower_a_success: float | None = None  # the same ratio for the steps that did work
    step_seconds: Pair = (None, None)  # from step to step
    tokens_per_second: Pair = (None, None)
    samples_per_second: Pair = (None, None)
    more_than_noise: bool | None = None  # whether the interval leaves out 1; None: too few steps to say
    noise: str = ""  # what the interval is made of, in words
    phases: list[PhaseChange] = field(default_factory=list)
    wall: dict[str, Pair] = field(default_factory=dict)
    once: dict[str, Pair] = field(default_factory=dict)  # seconds that are in no ratio
    cost: Pair = (None, None)
    metrics: dict[str, tuple[float | str | None, float | str | None]] = field(default_factory=dict)
    changed: list[Change] = field(default_factory=list)
    unlike: list[Change] = field(default_factory=list)  # what makes one speed no baseline for the other
    warnings: list[str] = field(default_factory=list)
    skipped: tuple[float, float] = (0.0, 0.0)  # shares of steps that did no work
    work: tuple[StepWork, StepWork] = (StepWork(), StepWork())


def compare_runs(before: Side, after: Side) -> Comparison:
    """Return how `after` differs from `before`."""
    one, two = before.report, after.report
    works = (work_of(one), work_of(two))
    per, paces = _paces(before.loop, after.loop)
    slower = interval = certain = None
    noise = "no steps with a time"
    parts: list[PhaseChange] = []
    if paces is not None:
        slower = paces[1].seconds / paces[0].seconds
        interval, noise = _interval(before, after, paces, per)
        certain = None if interval is None else not interval[0] <= 1.0 <= interval[1]
        parts = _parts(one, two, paces, bool(certain))
    return Comparison(
        before=one.run.id,
        after=two.run.id,
        per=per,
        slower=slower,
        interval=interval,
        slower_a_success=_by_success(one, two, per, slower),
        step_seconds=(None, None) if paces is None else (paces[0].step_seconds, paces[1].step_seconds),
        tokens_per_second=(one.throughput.tokens_per_second, two.throughput.tokens_per_second),
        samples_per_second=(one.throughput.samples_per_second, two.throughput.samples_per_second),
        more_than_noise=certain,
        noise=noise,
        phases=parts,
        wall=_wall_changes(one, two),
        once=_once(one, two, paces),
        cost=(one.progress.cost, two.progress.cost),
        metrics={name: (one.metrics[name].last, two.metrics[name].last) for name in one.metrics if name in two.metrics},
        changed=find_changes(one, two),
        unlike=[Change(*difference) for difference in differences(one, two)],
        warnings=_warnings(one, two, per, works),
        skipped=(skipped_share(one), skipped_share(two)),
        work=works,
    )


def _paces(one: LoopTime, two: LoopTime) -> tuple[str, tuple[Pace, Pace] | None]:
    """Return the unit to compare by, the first that both runs count, and both paces; None where a loop has no time."""
    per = next((unit for unit in UNITS if unit in one.work and unit in two.work), STEP_UNIT)
    paces = pace_of(one, per), pace_of(two, per)
    if paces[0] is None or paces[1] is None:
        return per, None
    if _at_the_same_steps(paces[0].stops, paces[1].stops, max(sum(one.steps), sum(two.steps))):
        return per, (paces[0].with_stops(), paces[1].with_stops())
    return per, (paces[0], paces[1])


def _at_the_same_steps(one: tuple[Stop, ...], two: tuple[Stop, ...], steps: int) -> bool:
    """Return whether both runs stop at the same steps: then the program does it, and no chance."""
    nearest = max(1.0, MAX_STOP_DISTANCE * steps)
    places = [sorted(stop.step for stop in stops) for stops in (one, two)]
    return len(one) == len(two) > 0 and all(abs(a - b) <= nearest for a, b in zip(*places, strict=True))


def _interval(before: Side, after: Side, paces: tuple[Pace, Pace], per: str) -> tuple[tuple[float, float] | None, str]:
    """Return the interval of the ratio, and in words what it is made of.

    Each run's own blocks tell how much its pace varied; what starts of one program differ by comes on top, as far as
    repeats tell it; and what the threads waited for cores more in one run than in the other may be all of the
    difference, or none.
    """
    one, two = paces[0].margin, paces[1].margin
    if one is None or two is None:
        return None, "too few steps to judge"
    repeats = max(_repeat_ratio(before, per), _repeat_ratio(after, per))
    wide = math.exp(math.hypot(one, two)) * max(MIN_REPEAT_RATIO, repeats)
    ratio = paces[1].seconds / paces[0].seconds
    without_waits = (1.0 - after.loop.waited) / max(0.01, 1.0 - before.loop.waited)
    interval = ratio / wide * min(1.0, without_waits), ratio * wide * max(1.0, without_waits)
    noise = f"{interval[0]:.2f}x to {interval[1]:.2f}x: runs vary by {share(one)} and {share(two)}"
    noise += f", starts of one program by {share(max(MIN_REPEAT_RATIO, repeats) - 1.0)}"
    if repeats > MIN_REPEAT_RATIO:
        noise += " (repeats of the command)"
    if max(before.loop.waited, after.loop.waited) >= 0.01:
        noise += f", waits for cores {share(before.loop.waited)} and {share(after.loop.waited)}"
    return interval, noise


def _repeat_ratio(side: Side, per: str) -> float:
    """Return how many times as long the slowest repeat takes as the fastest, without waits for cores: at least 1."""
    known = [(pace_of(loop, per), loop.waited) for loop in (side.loop, *side.repeats)]
    seconds = [pace.seconds * (1.0 - waited) for pace, waited in known if pace is not None and waited < 1.0]
    return max(seconds) / min(seconds) if len(seconds) > 1 else 1.0


def _by_success(one: Report, two: Report, per: str, slower: float | None) -> float | None:
    """Return the ratio for the steps that did work: those that were skipped have counted no other work."""
    done = 1.0 - skipped_share(one), 1.0 - skipped_share(two)
    return slower * done[0] / done[1] if slower is not None and per == STEP_UNIT and min(done) > 0.0 else slower


def skipped_share(report: Report) -> float:
    """Return the share of steps that did no work."""
    return report.progress.steps_skipped / max(1, report.progress.steps_ok + report.progress.steps_skipped)


def _parts(one: Report, two: Report, paces: tuple[Pace, Pace], certain: bool) -> list[PhaseChange]:
    """Return the parts of the time from step to step, and what each explains of the difference, the largest first."""
    if _phase_clock(one) != _phase_clock(two) or HOST_ONLY in (_phase_clock(one), _phase_clock(two)):
        return []  # the time that the host waits does not measure the device's work
    before, after = _part_seconds(one, paces[0]), _part_seconds(two, paces[1])
    units = [pace.step_seconds / pace.seconds for pace in paces]  # of work a step
    grown = {
        name: after.get(name, 0.0) / units[1] - before.get(name, 0.0) / units[0]
        for name in dict.fromkeys([*before, *after])
    }
    whole = paces[1].seconds - paces[0].seconds
    rows = [
        PhaseChange(name, before.get(name), after.get(name), change / whole if certain and whole else None)
        for name, change in grown.items()
    ]
    return sorted(rows, key=lambda row: -abs(grown[row.name]))


def _part_seconds(report: Report, pace: Pace) -> dict[str, float]:
    """Return the mean seconds a step of each phase and span, without one-offs; with the rest they are the pace."""
    steps = max(1, report.progress.steps_ok + report.progress.steps_skipped)
    rows = {row.name: row.recurring / steps for row in report.phases}
    spans = {name: seconds / steps for name, seconds in report.wall.in_loop.items() if seconds > 0.0}
    rest = pace.step_seconds - sum(rows.values()) - sum(spans.values())
    if rest < 0.0 and spans:  # the longest span came once
        longest = max(spans, key=lambda name: spans[name])
        spans[longest] = max(0.0, spans[longest] + rest)
    known = sum(rows.values()) + sum(spans.values())
    if known > pace.step_seconds:  # other one-offs, within the steps
        rows, spans = ({name: s * pace.step_seconds / known for name, s in part.items()} for part in (rows, spans))
    for name, seconds in (*spans.items(), (BETWEEN, max(0.0, rest))):
        rows[name] = rows.get(name, 0.0) + seconds
    return rows


def _phase_clock(report: Report) -> str:
    """Return the clock that measured the phases."""
    cuda = any(row.clock == "cuda" for row in report.phases)
    return "cuda" if cuda else "host" if report.device is None else HOST_ONLY


def _once(one: Report, two: Report, paces: tuple[Pace, Pace] | None) -> dict[str, Pair]:
    """Return the seconds of what each run did once: its start-up, what its first steps took longer, single stops."""
    rows: dict[str, Pair] = {"start-up": (one.wall.startup, two.wall.startup)}
    if paces is not None:
        rows["first steps"] = paces[0].first_steps, paces[1].first_steps
        stops = [sum(stop.seconds for stop in pace.stops) for pace in paces]
        rows["single stops"] = stops[0], stops[1]
    return rows


def _wall_changes(one: Report, two: Report) -> dict[str, Pair]:
    rows: dict[str, Pair] = {
        name: (getattr(one.wall, name), getattr(two.wall, name))
        for name in ("total", "startup", "steps", "between_steps", "teardown")
    }
    for name in dict.fromkeys([*one.wall.spans, *two.wall.spans]):
        rows[name] = (one.wall.spans.get(name), two.wall.spans.get(name))
    return rows


def _warnings(one: Report, two: Report, per: str, works: tuple[StepWork, StepWork]) -> list[str]:
    warnings = []
    before, after = (getattr(work, f"{per}s", None) for work in works)
    if before and after and abs(after / before - 1) > MAX_WORK_DIFFERENCE:
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
    unknown = unrecorded(one, two)
    if unknown:
        warnings.append(f"not recorded in both runs: {', '.join(unknown)}; what they changed cannot be told")
    for report in (one, two):
        if report.outcome.state == "running":
            warnings.append(f"{report.run.id} is still running")
    return warnings
