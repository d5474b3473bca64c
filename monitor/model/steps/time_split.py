"""Time split into what a run does once, now and then, and as a habit, so that each rule sees its own kind. Pure.

The habit is what the rhythm of the run takes, regular long steps included. Episodes are slow steps that come again at
no regular distance. One-offs are the first steps (compilation, autotuning, workers that start) and single values far
beyond all others: a mean over the steps would spread them over steps that never had them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from monitor.model.cycle import LEARN, phase_part
from monitor.model.report import SlowStep
from monitor.model.state import RankState
from monitor.model.steps.baseline import MIN_BASELINE_STEPS, Baseline, StepKind
from monitor.model.steps.series import STEP, Quantiles
from monitor.step_blocks import OTHER
from trainhooks.protocol.events import Step

MAX_ONCE = 2  # values: what comes once or twice may be chance, and from the third time on it is a habit of the run
# Times the next longest value, or the typical one for the first steps: the tail of usual values is closer together.
MIN_ONCE_RATIO = 3.0
MIN_VALUES = 5  # in which the phase occurs: of fewer, one may be a third of what is usual

MIN_RHYTHM = 3  # slow steps, before their distances are called regular: two equal distances are hardly chance
MAX_ROLLOUT_RATIO = 3.0  # of the typical rollout: longer episodes take longer
MIN_EVEN_SHARE = 0.8  # of the distances are the same: a step that waits for a core now and then breaks no rhythm
ALIKE = 2.0  # steps in a rhythm differ by less: programs that are run, or texts that are written, vary
MAX_UNEVEN = 0.05  # of the distance, at least one step: epochs differ by a batch


def phases_of(step: Step) -> dict[str, float]:
    """Return the seconds of a step's phases, with the time in no phase as `other`."""
    seconds: dict[str, float] = {}
    for name, took, _, _ in step.phases:
        seconds[name] = seconds.get(name, 0.0) + took
    seconds[OTHER] = max(0.0, step.duration - sum(seconds.values()))
    return seconds


def once_in(values: Quantiles, first: Sequence[float]) -> tuple[float, float]:
    """Return the seconds beyond the median in the first steps, and in single values far beyond all others.

    Args:
        values: the seconds of one part of the time, step by step.
        first: those of the run's first steps, in order; 0 where a step has none.
    """
    count = values.zeros + sum(values.bins.values())
    if count < MIN_VALUES:
        return 0.0, 0.0
    typical = values.at(0.5)[0]
    opening = []
    for seconds in first:
        if seconds < MIN_ONCE_RATIO * typical:
            break
        opening.append(seconds)
    if 2 * len(opening) > count:
        return 0.0, 0.0  # then they are what the run does
    rare = far_beyond(_without(values.largest(len(opening) + MAX_ONCE + 1), opening))
    early, late = (sum((max(0.0, seconds - typical) for seconds in part), 0.0) for part in (opening, rare))
    return early, late


def _without(longest: list[float], opening: Sequence[float]) -> list[float]:
    """Return the longest values without those of the first steps; they are known to the width of a bin."""
    for seconds in opening:
        near = next((at for at, value in enumerate(longest) if seconds / STEP <= value <= seconds * STEP), None)
        if near is not None:
            del longest[near]
    return longest


def far_beyond(longest: Sequence[float]) -> Sequence[float]:
    """Return the first values of a falling list that lie far beyond all that follow, at most `MAX_ONCE`."""
    for count in range(min(MAX_ONCE, len(longest) - 1), 0, -1):
        if longest[count - 1] >= MIN_ONCE_RATIO * longest[count]:
            return longest[:count]
    return ()


# Slow steps: of the first steps, by rhythm, and all others.


def first_slow_steps(main: RankState) -> list[SlowStep]:
    """Return the slow steps that the run begins with, which no steps before them could judge."""
    known = {slow.step for slow in main.slow_steps}
    rows = []
    for step in main.opening:
        baseline = main.baselines.get(StepKind.of(step))
        if baseline is None or len(baseline.durations) < MIN_BASELINE_STEPS:
            break
        if step.duration < MIN_ONCE_RATIO * baseline.typical() or step.duration <= baseline.limit:
            break
        if step.index not in known:
            rows.append(_slow_step(step, baseline, main.rank))
    return rows


def _slow_step(step: Step, baseline: Baseline, rank: int) -> SlowStep:
    phases, usual = phases_of(step), baseline.typical_phases()
    return SlowStep(
        step=step.index,
        rank=rank,
        seconds=step.duration,
        baseline=baseline.typical(),
        culprit=max(phases, key=lambda name: phases[name] - usual.get(name, 0.0)),
        phases=phases,
        usual_phases=usual,
        role=step.role,
        stage=step.stage,
        ended=step.t,
    )


def episodes(slow: Sequence[SlowStep], latest: Sequence[Step] = ()) -> list[SlowStep]:
    """Return the slow steps without those that come in a rhythm: every k-th step does something more.

    A rollout, an evaluation or a print lies in no phase or in a phase that other steps lack. Where the step's own work
    takes longer, it is slow, however regularly. Among the latest steps those count that take half as long, too: of a
    rhythm of alike steps only the longest may be slow.
    """
    more: dict[str, list[SlowStep]] = {}
    slow = unplanned(slow)
    for step in slow:
        if step.culprit == OTHER or not step.usual_phases.get(step.culprit):
            more.setdefault(step.culprit, []).append(step)
    rhythmic: set[int] = set()
    for culprit, steps in more.items():
        numbers = [step.step for step in steps]
        rhythmic.update(numbers if is_rhythm(numbers) else _among(latest, culprit, steps))
    return [step for step in slow if step.step not in rhythmic]


def _among(latest: Sequence[Step], culprit: str, slow: Sequence[SlowStep]) -> list[int]:
    """Return the slow steps that come in a rhythm of the latest ones, and are hardly longer than the others in it."""
    least = median(step.phases.get(culprit, 0.0) for step in slow) / ALIKE
    alike = {step.index: seconds for step in latest if (seconds := phases_of(step).get(culprit, 0.0)) >= least}
    if not is_rhythm(list(alike)):
        return []
    most = ALIKE * median(alike.values())
    return [step.step for step in slow if step.step in alike and step.phases.get(culprit, 0.0) <= most]


def unplanned(slow: Sequence[SlowStep]) -> list[SlowStep]:
    """Return the slow steps without those that collect what the others train on, as long as such steps take.

    By its phase a rollout is planned, in whatever rhythm it comes.
    """
    rollouts: dict[str, list[float]] = {}
    for step in slow:
        if _collects(step):
            rollouts.setdefault(step.culprit, []).append(step.phases[step.culprit])
    typical = {name: median(seconds) for name, seconds in rollouts.items()}
    return [
        step
        for step in slow
        if not _collects(step) or step.phases[step.culprit] > MAX_ROLLOUT_RATIO * typical[step.culprit]
    ]


def _collects(step: SlowStep) -> bool:
    planned = phase_part(step.culprit) not in (None, LEARN)
    return planned and not step.usual_phases.get(step.culprit) and step.culprit in step.phases


def is_rhythm(numbers: Sequence[int]) -> bool:
    """Return whether steps of these numbers come at even distances."""
    if len(numbers) < MIN_RHYTHM:
        return False
    gaps = [after - before for before, after in pairwise(sorted(numbers))]
    every = median(gaps)
    even = sum(abs(gap - every) <= max(1.0, MAX_UNEVEN * every) for gap in gaps)
    return every > 1 and even >= MIN_EVEN_SHARE * len(gaps)


def in_episodes(slow: Sequence[SlowStep], count: int) -> dict[str, float]:
    """Return the seconds beyond the typical ones in slow steps, by phase.

    Args:
        count: of all slow steps; those that are no longer kept are taken to be like the others.
    """
    sums: dict[str, float] = {}
    for step in slow:
        for name, seconds in step.phases.items():
            beyond = max(0.0, seconds - step.usual_phases.get(name, 0.0))
            sums[name] = sums.get(name, 0.0) + beyond
    scale = count / len(slow) if slow else 0.0
    return {name: scale * seconds for name, seconds in sums.items()}
