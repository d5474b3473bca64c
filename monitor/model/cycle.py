"""The iteration of reinforcement learning: collect, reward, prepare, learn, sync; by role. Pure.

Roles of one loop take turns. Other threads, and ranks with roles of their own, work beside it (`concurrent_roles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from monitor.model.steps.baseline import Baseline, StepKind
from monitor.step_blocks import OTHER
from trainhooks.protocol.events import Span

COLLECT, REWARD, PREPARE, LEARN, SYNC = "rollout", "reward", "prepare", "learn", "sync"
# Phases by what an iteration does in them, in its order. All others, and the time in no phase, belong to the learning,
# unless a step only collects.
PART_PHASES: dict[str, tuple[str, ...]] = {
    COLLECT: ("rollout", "generation", "test_generation"),
    REWARD: ("reward", "execution"),
    PREPARE: ("log_probs", "advantage"),
    LEARN: ("training", "data", "h2d", "forward", "backward", "optimizer"),
    SYNC: ("weight_sync",),
}
_PART = {phase: part for part, phases in PART_PHASES.items() for phase in phases}
IDLE_PART = "idle"  # between the steps, in no span, and waits for others; of what works beside the loop: in no phase
MIN_ITERATIONS = 2
MIN_COLLECTED = 0.02  # of an iteration: a sample that is generated to be looked at is no rollout
MAX_COLLECTED = 64  # recent spans whose distances are looked at
MIN_PART_SHARE = 0.005  # of an iteration, to be shown


@dataclass(slots=True)
class CyclePart:
    name: str  # rollout | reward | prepare | learn | sync | other | idle
    seconds: float
    share: float  # of the iteration


@dataclass(slots=True)
class CycleRole:
    """What one role and stage does in an iteration; None: the program names none."""

    role: str | None
    stage: str | None
    steps: float  # its steps in an iteration
    seconds: float
    is_concurrent: bool = False  # beside the loop, all the time; the others take turns
    parts: list[CyclePart] = field(default_factory=list)

    @property
    def label(self) -> str:
        return " ".join(part for part in (self.role, self.stage) if part) or "loop"


@dataclass(slots=True)
class Cycle:
    """One iteration, as the mean of the recent ones: a rollout, and the steps that learn from it."""

    seconds: float
    steps: float
    roles: list[CycleRole] = field(default_factory=list)
    staleness: float | None = None  # updates by which what is learned from is older than the weights, as logged


def mean_cycle(
    baselines: Mapping[StepKind, Baseline],
    stage: str | None,
    done: int,
    spans: Mapping[str, float],
    between: float,
    marks: Sequence[Span] = (),
    waits: float = 0.0,
    beside: Mapping[str, Mapping[str, float]] | None = None,
    staleness: float | None = None,
) -> Cycle | None:
    """Return the mean of the recent iterations; None where nothing is collected, or fewer than two are known.

    Args:
        baselines: the recent steps of each role and stage.
        stage: that of the newest step: one that is over is no part of the iteration.
        done: steps of the run.
        spans: seconds of spans outside the steps, over the run.
        between: seconds between the steps in no span, over the run.
        marks: spans outside the steps, each with the step before it; of many, the longest.
        waits: share of the time in which the loop waits for queues, pools and processes, in no phase or between steps.
        beside: role -> part -> share of the time, of what works beside the loop.
    """
    kinds = [(kind, base) for kind, base in baselines.items() if base.phases and kind.stage == stage]
    iterations = max((_count_collecting(base) for _, base in kinds), default=0)
    outside = {_PART[name]: seconds for name, seconds in spans.items() if name in _PART and done}
    if not iterations and COLLECT in outside:
        # Collected before each step, or before several that learn from it, in spans of its own.
        iterations = sum(len(base.durations) for _, base in kinds) // _steps_between(marks)
    elif not iterations and any(COLLECT in shares for shares in (beside or {}).values()):
        iterations = sum(len(base.durations) for _, base in kinds)  # how many steps learn from a rollout is unknown
    if iterations < MIN_ITERATIONS:
        return None
    roles = [_role(kind, base, iterations) for kind, base in kinds]
    roles.sort(key=lambda role: -role.seconds)
    steps = sum(role.steps for role in roles)
    for name, seconds in ({**outside, IDLE_PART: between} if done else {}).items():
        _add_seconds(roles[0], name, seconds / done * steps)
    whole = sum(part.seconds for role in roles for part in role.parts)
    _set_idle(roles[0], waits * whole)
    for name, shares in (beside or {}).items():
        parts = [CyclePart(part, share * whole, share) for part, share in shares.items()]
        roles.append(CycleRole(name, None, 0.0, whole, is_concurrent=True, parts=parts))
    collected = sum(part.seconds for role in roles for part in role.parts if part.name == COLLECT)
    if whole <= 0 or collected < MIN_COLLECTED * whole:
        return None
    order = [*PART_PHASES, "other", IDLE_PART]
    for role in roles:
        role.parts = [part for part in role.parts if part.seconds >= MIN_PART_SHARE * whole]
        role.parts.sort(key=lambda part: order.index(part.name))
        role.seconds = sum(part.seconds for part in role.parts)
        for part in role.parts:
            part.share = part.seconds / whole
    return Cycle(whole, steps, roles, staleness)


def steps_text(steps: float) -> str:
    """Return `16 steps`, `2.5 steps`."""
    whole = round(steps)
    return f"{steps:.1f} steps" if abs(steps - whole) >= 0.05 else "1 step" if whole == 1 else f"{whole:,} steps"


def phase_part(phase: str) -> str | None:
    """Return the part of an iteration that a phase belongs to; None: to none by its name."""
    return _PART.get(phase)


def assigned_part(phase: str, learns: bool) -> str:
    """Return the part that a phase's time counts for; time in no phase is the learning's, where there is any."""
    return LEARN if phase == OTHER and learns else _PART.get(phase, "other")


def _count_collecting(base: Baseline) -> int:
    """Return how many of a kind's recent steps collect."""
    return sum(any(_PART.get(name) == COLLECT and spent > 0 for name, spent in step.items()) for step in base.steps())


def _steps_between(marks: Sequence[Span]) -> int:
    """Return how many steps lie between two spans that collect; 1 where that is unknown."""
    steps = sorted({mark.step for mark in marks if mark.step is not None and _PART.get(mark.name) == COLLECT})
    apart = sorted(after - before for before, after in pairwise(steps[-MAX_COLLECTED:]))
    return apart[len(apart) // 4] if apart else 1  # where shorter ones were left out, a quarter still has its neighbor


def _role(kind: StepKind, base: Baseline, iterations: int) -> CycleRole:
    role = CycleRole(kind.role, kind.stage, len(base.durations) / iterations, sum(base.durations) / iterations)
    seconds: dict[str, float] = {}
    for step in base.steps():
        learns = any(_PART.get(name) == LEARN and spent > 0 for name, spent in step.items())
        for name, spent in step.items():
            part = assigned_part(name, learns)
            seconds[part] = seconds.get(part, 0.0) + spent
    role.parts = [CyclePart(part, spent / iterations, 0.0) for part, spent in seconds.items()]
    return role


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
