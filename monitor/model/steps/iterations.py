"""The iterations of a loop that collects what it learns from: where each begins, and what it takes. Pure.

An iteration begins with the work that makes what its steps learn from: a rollout, or the rewards of answers that were
at hand. It lasts until the next one begins, whatever lies between its steps, and holds any number of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from monitor.model.cycle import COLLECT, IDLE_PART, LEARN, REWARD, SlowIteration, phase_part
from monitor.model.steps.baseline import OTHER_KINDS, WARM_UP, Baseline, StepKind
from monitor.step_blocks import OTHER, Parts, StepBlock, dense_columns
from trainhooks.protocol.events import Span
from trainhooks.protocol.limits import OVERFLOW

RECENT = 64  # iterations in the means: enough for answers that differ in length
MAX_WORKS = 64  # names of work that are told apart
MAX_KINDS = 16  # of iterations
MAX_SLOW = 50  # slow ones that are kept
BETWEEN = "between steps"
ONLY_LEARNS = "learn"  # the kind of an iteration that has neither a rollout nor rewards of its own


class Work(NamedTuple):
    """What takes the time of an iteration: a phase of steps of a kind; None: a span between the steps."""

    kind: StepKind | None
    name: str
    learns: bool = True  # false: time in no phase, in steps that do not learn
    is_count: bool = False  # it is no time, but the number of steps


_BEGINS = (COLLECT, IDLE_PART)  # its own rollout, or the wait for what others collect
STEPS, TRACED = "steps", "traced steps"  # those that are counted; a trace makes steps longer
Sums = dict[Work, float]
Columns = dict[Work, FloatArray]  # a value for each iteration


@dataclass(slots=True)
class Iterations:
    """The iterations of one rank. Work is summed up over the run, so that one is the difference of two moments."""

    count: int = 0  # complete ones
    begin: float | None = None  # of the open one; None: there is none
    first: int = 0  # its first step
    steps: int = 0  # how many of its steps have ended
    stage: str | None = None  # of its newest steps
    done: set[tuple[str | None, str]] = field(default_factory=set)  # in it: role and part
    sums: Sums = field(default_factory=dict)
    before: Sums = field(default_factory=dict)  # the sums when it began
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the recent ones
    recent: Columns = field(default_factory=dict)
    baselines: dict[str, Baseline] = field(default_factory=dict)  # by their kind
    slow: list[SlowIteration] = field(default_factory=list)

    def add_span(self, span: Span, last_step: int) -> None:
        """Add a span that has ended; `last_step` is the newest step's number."""
        part = phase_part(span.name)
        if span.own_seconds <= 0.0 or (self.begin is None and part not in _BEGINS):
            return
        if part in (*_BEGINS, REWARD):
            if self._is_next(None, part, self.steps > 0):
                self._begin_many(
                    np.array([span.start]),
                    [last_step + 1],
                    {work: np.array([value]) for work, value in self.sums.items()},
                )
                self.steps = 0
                self.done.clear()
            self.done.add((None, part))
        work = self._known(Work(None, span.name))
        self.sums[work] = self.sums.get(work, 0.0) + span.own_seconds

    def take_back(self, name: str, seconds: float) -> None:
        """Take a span's time back that turned out to lie within a step."""
        work = Work(None, name)
        if work in self.sums:
            self.sums[work] -= seconds

    def add_steps(self, block: StepBlock, groups: Sequence[Parts]) -> None:
        """Add steps of the loop, with their phases."""
        if self.begin is None and not any(phase_part(name) == COLLECT for group in groups for name in group.seconds):
            return
        columns = dense_columns(groups, len(block))
        if self.done and self.steps and block.stage != self.stage:
            self.done.add((block.role, COLLECT))  # what is collected in another stage begins the next one
        self.stage = block.stage
        places = self._begins(columns, block.role, len(block))
        running = self._running_sums(block, columns)
        if places:
            sums = {
                work: running[work][places] if work in running else np.full(len(places), value)
                for work, value in {**self.sums, **running}.items()
            }
            self._begin_many(block.start[places], block.index[places].tolist(), sums)
            self.steps = len(block) - places[-1]
        elif self.begin is not None:
            self.steps += len(block)
        self.sums |= {work: float(column[-1]) for work, column in running.items()}

    def restart(self) -> None:
        """Forget the open one: its process was replaced."""
        self.begin, self.steps = None, 0
        self.done.clear()

    def stretches(self) -> list[tuple[int, float]]:
        """Return the steps and the seconds of the recent ones; the run's first one compiles and fills caches."""
        steps = counted(self.recent, STEPS, len(self.seconds)).astype(int).tolist()
        return list(zip(steps, self.seconds.tolist(), strict=True))[int(self.count == len(self.seconds)) :]

    def last(self, end: float) -> tuple[float, Sums]:
        """Return the open one as it is at the run's end: its seconds, and its work."""
        taken = {work: value - self.before.get(work, 0.0) for work, value in self.sums.items()}
        return end - (end if self.begin is None else self.begin), taken

    def _is_next(self, role: str | None, part: str, has_stepped: bool) -> bool:
        """Return whether this work begins the next one: the open one has learned, and has done this before.

        What is collected for a role that has had no turn belongs to the open one.
        """
        if not self.done:
            return part in _BEGINS
        known = {(role, part)} if part == REWARD else {(role, each) for each in (*_BEGINS, REWARD)}
        return has_stepped and not known.isdisjoint(self.done)

    def _begins(self, columns: Mapping[str, FloatArray], role: str | None, steps: int) -> list[int]:
        """Return the places of the steps that begin an iteration."""
        collects, rewards = (_spent(columns, steps, part) for part in (COLLECT, REWARD))
        at, places = (collects | rewards).nonzero()[0], []
        for place, is_collected, is_rewarded in zip(
            at.tolist(), collects[at].tolist(), rewards[at].tolist(), strict=True
        ):
            if self._is_next(role, COLLECT if is_collected else REWARD, place > 0 or self.steps > 0):
                places.append(place)
                self.done.clear()
            elif not self.done:
                continue  # rewards before the first rollout
            self.done |= {(role, COLLECT)} if is_collected else set()
            self.done |= {(role, REWARD)} if is_rewarded else set()
        return places

    def _running_sums(self, block: StepBlock, columns: Mapping[str, FloatArray]) -> Columns:
        """Return the sums before each of the steps, and after the last one; added in turn, in blocks of any size."""
        kind, learns = StepKind.of(block), _spent(columns, len(block), LEARN)
        rows: Columns = {Work(kind, STEPS, is_count=True): np.ones(len(block))}
        if block.measured:
            rows[Work(kind, TRACED, is_count=True)] = np.ones(len(block))
        for name, column in columns.items():
            if name == OTHER and not learns.all():
                rows[self._known(Work(kind, name, False))] = column * ~learns
                column = column * learns
            work = self._known(Work(kind, name))
            rows[work] = rows[work] + column if work in rows else column
        return {work: np.cumsum(np.concatenate(([self.sums.get(work, 0.0)], row))) for work, row in rows.items()}

    def _known(self, work: Work) -> Work:
        if work in self.sums or len(self.sums) < MAX_WORKS:
            return work
        return Work(None if work.kind is None else OTHER_KINDS, OVERFLOW)

    def _begin_many(self, begins: FloatArray, firsts: list[int], sums: Columns) -> None:
        """Begin iterations, each of which ends the one before.

        Args:
            sums: as they are at each of the begins.
        """
        if self.begin is not None:
            begins, firsts = np.concatenate(([self.begin], begins)), [self.first, *firsts]
            sums = {work: np.concatenate(([self.before.get(work, 0.0)], column)) for work, column in sums.items()}
        if len(begins) > 1:
            self._add(
                np.maximum(0.0, np.diff(begins)),
                begins[1:],
                firsts,
                {work: np.diff(column) for work, column in sums.items()},
            )
        self.begin, self.first = float(begins[-1]), firsts[-1]
        self.before = {work: float(column[-1]) for work, column in sums.items()}

    def _add(self, seconds: FloatArray, ends: FloatArray, firsts: list[int], taken: Columns) -> None:
        """Add complete iterations: judge each, and keep the recent ones."""
        count, old = len(seconds), len(self.seconds)
        self.count += count
        self.seconds = np.concatenate((self.seconds, seconds))[-RECENT:]
        for work in dict.fromkeys((*self.recent, *taken)):
            older = self.recent.get(work, np.zeros(old))
            self.recent[work] = np.concatenate((older, taken.get(work, np.zeros(count))))[-RECENT:]
        named = named_seconds(seconds, taken)
        steps, traced = (counted(taken, name, count) for name in (STEPS, TRACED))
        for kind, members in iteration_kinds(taken, count).items():
            places = members[traced[members] == 0.0]
            known = kind if kind in self.baselines or len(self.baselines) < MAX_KINDS else OVERFLOW
            baseline = self.baselines.setdefault(known, Baseline(seen=WARM_UP - 1))  # the first one compiles
            slow = partial(self._slow, baseline, places, firsts, steps, named, seconds, ends)
            baseline.add(seconds[places], {name: column[places] for name, column in named.items()}, slow)
        self.slow.sort(key=lambda slow: slow.step)
        del self.slow[:-MAX_SLOW]

    def _slow(
        self,
        baseline: Baseline,
        places: IntArray,
        firsts: list[int],
        steps: FloatArray,
        named: Mapping[str, FloatArray],
        seconds: FloatArray,
        ends: FloatArray,
        at: int,
    ) -> None:
        place = int(places[at])
        phases = {name: float(column[place]) for name, column in named.items()}
        usual = baseline.typical_phases()
        self.slow.append(
            SlowIteration(
                step=firsts[place],
                steps=int(steps[place]),
                seconds=float(seconds[place]),
                baseline=baseline.typical(),
                culprit=max(phases, key=lambda name: phases[name] - usual.get(name, 0.0)),
                phases={name: spent for name, spent in phases.items() if spent > 0.0},
                usual_phases=usual,
                ended=float(ends[place]),
            )
        )


def counted(taken: Columns, name: str, count: int) -> FloatArray:
    """Return how many steps each iteration has."""
    rows = [column for work, column in taken.items() if work.is_count and work.name == name]
    return sum(rows, np.zeros(count))


def named_seconds(seconds: FloatArray, taken: Columns) -> dict[str, FloatArray]:
    """Return what each iteration takes, by phases, spans and the time between the steps; they add up to it."""
    rows: dict[str, FloatArray] = {}
    for work, column in taken.items():
        if not work.is_count:
            rows[work.name] = rows[work.name] + column if work.name in rows else column
    return {**rows, BETWEEN: np.maximum(0.0, seconds - sum(rows.values(), np.zeros(len(seconds))))}


def iteration_kinds(taken: Columns, count: int) -> dict[str, IntArray]:
    """Return the places of the iterations of each kind: whose steps they have, and what they do beside the learning.

    The name of a kind is `rollout, eval`, or `generator, rollout, reward`.
    """
    present: dict[str, FloatArray] = {}
    for work, column in taken.items():
        part = phase_part(work.name)
        if work.is_count:
            name = work.kind.role if work.kind is not None else None
        else:
            name = part if part in (COLLECT, REWARD) else work.name if part is None and work.kind is None else None
        if name is not None:
            present[name] = present.get(name, np.zeros(count)) + column
    roles = {work.kind.role for work in taken if work.kind is not None}
    order = sorted(present, key=lambda name: (name not in roles, name != COLLECT, name != REWARD, name))
    patterns: dict[tuple[bool, ...], list[int]] = {}
    for place, pattern in enumerate(zip(*((present[name] > 0.0).tolist() for name in order), strict=True)):
        patterns.setdefault(pattern, []).append(place)
    return {
        ", ".join(name for name, is_there in zip(order, pattern, strict=True) if is_there) or ONLY_LEARNS: np.array(
            places
        )
        for pattern, places in patterns.items()
    }


def _spent(columns: Mapping[str, FloatArray], steps: int, part: str) -> BoolArray:
    """Return which steps spend time in this part of an iteration."""
    found = np.zeros(steps, bool)
    for name, column in columns.items():
        if phase_part(name) == part:
            found |= column > 0.0
    return found
