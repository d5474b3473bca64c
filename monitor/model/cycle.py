"""The iteration of reinforcement learning: its parts (collect, reward, prepare, learn, sync) and figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.step_blocks import OTHER
from monitor.units import brief
from trainhooks.protocol.vocabulary import IDLE

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
IDLE_PART = IDLE  # between the steps, in no span, and waits for others; of what works beside the loop: in no phase
_PART = {phase: part for part, phases in PART_PHASES.items() for phase in phases} | {IDLE: IDLE_PART}
MIN_ITERATIONS = 2
MIN_COLLECTED = 0.02  # of an iteration: a sample that is generated to be looked at is no rollout


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
class IterationKind:
    """Iterations with the same work: some have an evaluation, some take from a cache what others generate."""

    name: str  # its parts but the learning, and its spans: `rollout, reward`; `learn` where there is nothing else
    share: float  # of the recent iterations
    typical_seconds: float


@dataclass(slots=True)
class SlowIteration:
    step: int  # the first of its steps
    steps: int
    seconds: float
    baseline: float  # the median seconds of iterations of its kind
    culprit: str  # the phase or span that grew most
    phases: dict[str, float] = field(default_factory=dict)
    usual_phases: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0  # on the clock of its machine

    def __str__(self) -> str:
        """Return `Slow iteration from step 321 on (65.3 s): generation 45.2 s, between steps 0.3 s; typical 18.0 s`."""
        least = 0.01 * self.seconds
        parts = [f"{name} {brief(spent)}" for name, spent in self.phases.items() if spent >= least]
        where = f"Slow iteration from step {self.step} on ({brief(self.seconds)})"
        return f"{where}: {', '.join(parts)}; typical {brief(self.baseline)}"


@dataclass(slots=True)
class Cycle:
    """One iteration: a rollout, and the steps that learn from it. All but `slow` is of the recent ones."""

    seconds: float  # the mean
    steps: float
    roles: list[CycleRole] = field(default_factory=list)
    staleness: float | None = None  # updates by which what is learned from is older than the weights, as logged
    typical_seconds: float | None = None  # the median
    count: int = 0  # complete iterations of the run
    phases: list[CyclePart] = field(default_factory=list)  # phases, spans and the time between the steps; add up to it
    kinds: list[IterationKind] = field(default_factory=list)
    slow: list[SlowIteration] = field(default_factory=list)


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
