"""The mean of the recent iterations, read off the state of a rank. Pure.

Roles of one loop take turns. Other threads, and ranks with roles of their own, work beside it (`concurrent_roles`).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from monitor.arrays import FloatArray, np
from monitor.model.cycle import (
    COLLECT,
    IDLE_PART,
    LEARN,
    MIN_COLLECTED,
    MIN_ITERATIONS,
    PART_PHASES,
    Cycle,
    CyclePart,
    CycleRole,
    IterationKind,
    assigned_part,
    phase_part,
)
from monitor.model.ranks.concurrent_roles import Beside
from monitor.model.state import RankState
from monitor.model.steps.baseline import Baseline, StepKind
from monitor.model.steps.iterations import STEPS, Columns, Work, iteration_kinds, named_seconds

MIN_PART_SHARE = 0.005  # of an iteration, to be shown

ROUNDING = 1e-9  # seconds

Loop = tuple[FloatArray, Columns]  # seconds of each iteration, and what they take


def mean_cycle(
    main: RankState,
    over: bool,
    waits: float = 0.0,
    beside: Mapping[str, Beside] | None = None,
    staleness: float | None = None,
    own: str | None = None,
) -> Cycle | None:
    """Return the mean of the recent iterations; None where nothing is collected, or fewer than two are known.

    Args:
        over: whether the run has ended: its last iteration is complete.
        waits: share of the time in which the loop waits for queues, pools and processes, in no phase or between steps.
        own: the role of the loop's process, where its steps name none.
        beside: by role.
    """
    beside = beside or {}
    loop = _known(main, over)
    count = main.iterations.count + len(loop[0]) - len(main.iterations.seconds)
    seconds, taken = _of_newest_stage(loop, main)
    if not len(seconds) and any(COLLECT in each.shares for each in beside.values()):
        seconds, taken = _of_steps(main.baselines)  # how many steps learn from a rollout is unknown
    if len(seconds) < MIN_ITERATIONS:
        return None
    whole = float(seconds.mean())
    means = {work: float(column.mean()) for work, column in taken.items()}
    roles = _roles(means, whole, waits)
    for role in roles:
        role.role = role.role or own
    for name, each in beside.items():
        parts = [CyclePart(part, share * whole, share) for part, share in each.shares.items()]
        roles.append(CycleRole(name, None, each.steps_per_second * whole, whole, is_concurrent=True, parts=parts))
    collected = sum(part.seconds for role in roles for part in role.parts if part.name == COLLECT)
    if whole <= 0 or not roles or collected < MIN_COLLECTED * whole:
        return None
    _settle(roles, whole)
    phases = [
        CyclePart(name, spent, spent / whole) for name, spent in named_means(seconds, taken).items() if spent > ROUNDING
    ]
    kinds = [
        IterationKind(name, len(places) / len(seconds), float(np.median(seconds[places])))
        for name, places in iteration_kinds(taken, len(seconds)).items()
    ]
    return Cycle(
        seconds=whole,
        steps=sum(role.steps for role in roles if not role.is_concurrent),
        roles=roles,
        staleness=staleness,
        typical_seconds=median(seconds.tolist()),
        count=count,
        phases=sorted(phases, key=lambda part: -part.seconds),
        kinds=sorted(kinds, key=lambda kind: -kind.share),
        slow=list(main.iterations.slow),
    )


def _known(main: RankState, over: bool) -> Loop:
    """Return the recent iterations; the last one of an ended run with them, without what followed its last step."""
    iterations, end = main.iterations, main.wall.last_step
    seconds, taken = iterations.seconds, iterations.recent
    if not over or end is None or iterations.begin is None or not iterations.steps:
        return seconds, taken
    last, work = iterations.last(end)
    for name, after in main.wall.trailing.items():
        span = Work(None, name)
        left = work.get(span, 0.0) - after
        work[span] = left if left > ROUNDING else 0.0
    none = np.zeros(len(seconds))
    return np.append(seconds, last), {name: np.append(taken.get(name, none), value) for name, value in work.items()}


def _of_newest_stage(loop: Loop, main: RankState) -> Loop:
    """Return the iterations with steps of the newest stage: one that is over had a pace of its own."""
    latest = main.latest.steps()
    stage = StepKind.of(latest[-1]).stage if latest else None
    seconds, taken = loop
    staged = [
        column
        for work, column in taken.items()
        if work.name == STEPS and work.is_count and work.kind is not None and work.kind.stage == stage
    ]
    at = np.any([column > 0.0 for column in staged], axis=0) if staged else np.zeros(len(seconds), bool)
    return seconds[at], {work: column[at] for work, column in taken.items()}


def _of_steps(baselines: Mapping[StepKind, Baseline]) -> Loop:
    """Return each step as an iteration."""
    seconds: list[float] = []
    taken: Columns = {}
    whole = sum(len(base.durations) for base in baselines.values())
    for kind, base in baselines.items():
        first, end = len(seconds), len(seconds) + len(base.durations)
        learns = any(phase_part(name) == LEARN for name in base.phases)
        for work, column in {
            Work(kind, STEPS, is_count=True): np.ones(end - first),
            **{Work(kind, name, learns): column for name, column in base.phases.items()},
        }.items():
            taken.setdefault(work, np.zeros(whole))[first:end] = column
        seconds += base.durations
    return np.array(seconds), taken


def named_means(seconds: FloatArray, taken: Columns) -> dict[str, float]:
    """Return the mean seconds of each phase and span, and of the time between steps."""
    return {name: float(column.mean()) for name, column in named_seconds(seconds, taken).items()}


def _roles(means: Mapping[Work, float], whole: float, waits: float) -> list[CycleRole]:
    """Return what each role of the loop does; what lies between the steps is the first one's."""
    roles: dict[StepKind, CycleRole] = {}
    for work, mean in means.items():
        if work.is_count and work.name == STEPS and work.kind is not None and mean:
            role = roles.setdefault(work.kind, CycleRole(work.kind.role, work.kind.stage, 0.0, 0.0))
            role.steps += mean
    for work, mean in means.items():
        if not work.is_count and work.kind is not None and work.kind in roles:
            role = roles[work.kind]
            role.seconds += mean
            _add_seconds(role, assigned_part(work.name, work.learns), mean)
    rows = sorted(roles.values(), key=lambda role: -role.seconds)
    if rows:
        for work, mean in means.items():
            if work.kind is None:
                _add_seconds(rows[0], assigned_part(work.name, False), mean)
        claimed = sum(mean for work, mean in means.items() if not work.is_count)
        _add_seconds(rows[0], IDLE_PART, max(0.0, whole - claimed))
        _set_idle(rows[0], waits * whole)
    return rows


def _settle(roles: list[CycleRole], whole: float) -> None:
    """Set the shares of the parts, in their order, without what is too small to be shown."""
    order = [*PART_PHASES, "other", IDLE_PART]
    for role in roles:
        role.parts = [part for part in role.parts if part.seconds >= MIN_PART_SHARE * whole]
        role.parts.sort(key=lambda part: order.index(part.name))
        role.seconds = sum(part.seconds for part in role.parts)
        for part in role.parts:
            part.share = part.seconds / whole


def _set_idle(role: CycleRole, least: float) -> None:
    """Take what a role waits out of its learning; of that, the time between the steps is idle already."""
    seconds = {part.name: part for part in role.parts}
    if LEARN in seconds:
        idle = seconds[IDLE_PART].seconds if IDLE_PART in seconds else 0.0
        waited = max(0.0, min(least - idle, seconds[LEARN].seconds))
        seconds[LEARN].seconds -= waited
        _add_seconds(role, IDLE_PART, waited)


def _add_seconds(role: CycleRole, name: str, seconds: float) -> None:
    found = next((part for part in role.parts if part.name == name), None)
    if found is None:
        role.parts.append(CyclePart(name, seconds, 0.0))
    else:
        found.seconds += seconds
