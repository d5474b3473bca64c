"""The typical step, and which steps are slow: by median and median absolute deviation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from monitor.arrays import FloatArray, np
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Pulse, Step
from trainhooks.protocol.limits import OVERFLOW

WINDOW = 128  # steps in the median: enough to ignore outliers, few enough to follow a change
WARM_UP = 3  # first steps of a kind, left out: allocators, caches, autotuning and compilation make them slow
MIN_BASELINE_STEPS = 8  # steps before anything is called unusual
SIGMAS = 6.0  # robust standard deviations: chance does not exceed six, however long the run
MIN_SLOW_RATIO = 1.5  # of the typical step: in a single step, less does not matter to people
# About one step in sixteen is regularly longer than typical (a cache miss, a print). A step is slow only if it is
# clearly longer than these, too.
HABIT_SHARE = 0.06
MIN_HABIT_RATIO = 1.2
MIN_EXCESS_SECONDS = 0.02  # seconds; the scheduler of a shared machine may take as much now and then
RECHECK = 16  # steps between two computations of the limit while the window fills
RECHECK_FULL = 64  # the same once it is full: in fewer steps its median hardly moves

MAD_TO_SIGMA = 1.4826  # of a normal distribution


class StepKind(NamedTuple):
    """The role and stage of a step: steps of one kind are compared with each other. None: the step names none."""

    role: str | None = None
    stage: str | None = None

    @staticmethod
    def of(step: Step | Pulse | StepBlock) -> StepKind:
        """Return the kind of steps, or of the step that a pulse shows open; an empty name is none."""
        return StepKind(step.role or None, step.stage or None)


OTHER_KINDS = StepKind(OVERFLOW)  # the row that further kinds share once a table of kinds is full


@dataclass(slots=True)
class Baseline:
    """The typical step of one role and stage."""

    seen: int = 0
    durations: list[float] = field(default_factory=list)
    phases: dict[str, FloatArray] = field(default_factory=dict)  # seconds in these steps; 0: a step without it
    limit: float = 0.0  # a longer step is slow; 0 while too few steps are known

    def unusual(self, duration: float) -> bool:
        """Return whether a step this long is slow, judged by the steps before it."""
        if self.limit == 0.0 or duration <= self.limit:
            return False
        self.limit = slow_limit(self.durations)  # it may have moved since it was computed
        return duration > self.limit

    def warm_up(self) -> None:
        """Leave out the next steps as warm-up: the process has been restarted."""
        self.seen = 0

    def add(self, column: FloatArray, phases: dict[str, FloatArray], slow: Callable[[int], None]) -> None:
        """Add consecutive steps, each judged by those before it.

        Args:
            column: their seconds.
            phases: the seconds of each phase in each of them.
            slow: called with the position of each slow step, before that step is added.
        """
        durations: list[float] = column.tolist()
        end = len(durations)
        at = min(end, max(0, WARM_UP - self.seen))
        self.seen += at
        ahead = self._ahead(column[at:])
        remembered = at  # the phases of the steps before this one are in the window, or belong to the warm-up
        while at < end:
            upto = min(end, at + self._same_limit())
            if max(durations[at:upto]) > self.limit > 0.0:  # a step may be slow: check one by one
                upto = at + 1
                if self.unusual(durations[at]):
                    self._remember(phases, remembered, at)
                    remembered = at
                    slow(at)
            self._add(durations[at:upto], ahead)
            at = upto
        self._remember(phases, remembered, end)

    def _same_limit(self) -> int:
        """Return for how many steps the limit stays as it is, at least 1."""
        if self.limit == 0.0:
            return 1
        every = self._every()
        return every - self.seen % every

    def _every(self) -> int:
        return RECHECK if len(self.durations) < WINDOW else RECHECK_FULL

    def _ahead(self, durations: FloatArray) -> dict[int, float]:
        """Return the limits of full windows ahead of time, by the number of steps seen at each check."""
        known = np.concatenate((np.array(self.durations, float), durations))
        skipped = self.seen - len(self.durations)
        first = WINDOW + -(skipped + WINDOW) % RECHECK_FULL
        if len(known) < first:
            return {}
        windows = np.lib.stride_tricks.sliding_window_view(known[first - WINDOW :], WINDOW)[::RECHECK_FULL]
        limits = _limits(np.sort(windows.T, axis=0)).tolist()
        return dict(zip(range(skipped + first, skipped + len(known) + 1, RECHECK_FULL), limits, strict=True))

    def _add(self, durations: Sequence[float], ahead: dict[int, float]) -> None:
        self.seen += len(durations)
        self.durations += durations
        del self.durations[:-WINDOW]
        if len(self.durations) >= MIN_BASELINE_STEPS and (self.limit == 0.0 or self.seen % self._every() == 0):
            self.limit = ahead.get(self.seen) or slow_limit(self.durations)

    def _remember(self, phases: dict[str, FloatArray], first: int, end: int) -> None:
        """Keep the phases of the steps that were added, as many as the window holds."""
        size = len(self.durations)
        new = min(end - first, size)
        old, kept = size - new, {}
        for name in dict.fromkeys((*self.phases, *phases)):
            before = self.phases.get(name)
            older = np.zeros(old) if before is None else before[len(before) - old :]
            newer = phases[name][end - new : end] if name in phases else np.zeros(new)
            if older.any() or newer.any():  # a phase that no step of the window has is none of it
                kept[name] = np.concatenate((older, newer))
        self.phases = kept

    def typical(self) -> float:
        """Return the median seconds of a step; 0 without steps."""
        return median(self.durations) if self.durations else 0.0

    def typical_phases(self) -> dict[str, float]:
        """Return the median seconds of each phase; a step without it counts as 0."""
        if not self.phases or not self.durations:
            return {}
        middles = _middle(np.sort(np.stack(list(self.phases.values())), axis=1).T)
        return {name: float(seconds) for name, seconds in zip(self.phases, middles, strict=True)}

    def steps(self) -> list[dict[str, float]]:
        """Return the phases of these steps, step by step."""
        rows = zip(*(column.tolist() for column in self.phases.values()), strict=True)
        return [dict(zip(self.phases, row, strict=True)) for row in rows]


def slow_limit(durations: Sequence[float]) -> float:
    """Return from how many seconds on steps of these durations are slow; `durations` is not empty."""
    return float(_limits(np.sort(np.array(durations, float))))


def _limits(ordered: Any) -> Any:
    """Return the limit of sorted durations; of sorted columns, one for each."""
    typical = _middle(ordered)
    spread = MAD_TO_SIGMA * _middle(np.sort(abs(ordered - typical), axis=0))
    habit = ordered[int((1 - HABIT_SHARE) * (len(ordered) - 1))]
    limits = (typical + SIGMAS * spread, MIN_SLOW_RATIO * typical, MIN_HABIT_RATIO * habit)
    return np.maximum.reduce([*limits, typical + MIN_EXCESS_SECONDS])


def _middle(ordered: Any) -> Any:
    """Return the median of sorted values, without sorting them again; of sorted columns, one for each."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
