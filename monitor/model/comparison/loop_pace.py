"""The time of a training's loop, everything between its steps included, and its pace: seconds for a unit of work. Pure.

What a run does once is no part of its pace: its first steps (compilation, a first batch, caches), and single long
stops. The margin of a pace comes from blocks of the run's own time. Where long stops come in a rhythm (evaluations,
checkpoints), a block is a whole cycle of it, so that no block has one stop more than another by where it was cut.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import fmean, median

from monitor.arrays import np
from monitor.model.host_waits import lost_share
from monitor.model.report import Report
from monitor.model.state import RankState, RunState
from monitor.model.steps.pace import Mark
from monitor.model.steps.series import Column
from monitor.model.steps.time_split import far_beyond, is_rhythm
from monitor.model.wall_time import first_cycle
from trainhooks.protocol.vocabulary import ENV_STEPS

STEP_UNIT = "step"
COLLECTED = {"completion": "completions", "environment step": ENV_STEPS}  # units of work -> their metrics
UNITS = ("token", "sample", *COLLECTED)  # before steps, the one that tells most of the work first

MIN_FIRST_RATIO = 1.5  # times the typical step: first steps that take so long warm something up
MIN_STOP_RATIO = 2.0  # times the typical stretch, beyond it: a stop, not the spread of usual steps
MIN_STOPS = 3  # that make a rhythm; what comes once or twice may be chance
ALIKE_STOP = 0.5  # of the third longest: stops of the longest kind, at which cycles end
MAX_UNEVEN_TAIL = 1.05  # times the longest cycle: what follows the last stop is then the begin of another one

MIN_STRETCHES = 8  # of the loop, before anything is said about noise
MIN_BLOCKS, MAX_BLOCKS = 3, 16
# Student's t for 99% of both sides, by degrees of freedom: a margin is exceeded by chance in one of 100 runs.
T99 = {2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50, 8: 3.36, 9: 3.25, 10: 3.17, 11: 3.11, 12: 3.05, 13: 3.01}
LEAST_T99 = 2.95  # of 15


@dataclass(frozen=True, slots=True)
class LoopTime:
    """Consecutive stretches of the loop, from its begin to the end of its last step."""

    seconds: list[float] = field(default_factory=list)  # of each stretch
    steps: list[int] = field(default_factory=list)
    work: dict[str, list[float]] = field(default_factory=dict)  # unit -> amount in each stretch, where it is counted
    first: int = 1  # the number of the first step
    opening: list[float] = field(default_factory=list)  # seconds of the first steps, one by one, waits included
    waited: float = 0.0  # share of the time in which its threads wanted a core that others had

    def between(self, first: int, last: int) -> LoopTime:
        """Return the stretches that lie within these steps."""
        ends = [self.first + done for done in accumulate(self.steps)]
        begins = [self.first, *ends[:-1]]
        kept = [at for at, end in enumerate(ends) if begins[at] >= first and end <= last + 1]
        return replace(
            self,
            seconds=[self.seconds[at] for at in kept],
            steps=[self.steps[at] for at in kept],
            work={unit: [amounts[at] for at in kept] for unit, amounts in self.work.items()},
            first=begins[kept[0]] if kept else self.first,
            opening=self.opening if kept and kept[0] == 0 else [],
        )

    @property
    def last(self) -> int:
        """Return the number of the last step."""
        return self.first + sum(self.steps) - 1


@dataclass(frozen=True, slots=True)
class Stop:
    """A single long stop, within a step or between two."""

    step: int
    seconds: float  # beyond the usual ones


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for a unit of work, one-offs left out. `margin` is relative, for 99%; None: too few stretches."""

    seconds: float
    step_seconds: float
    total: float  # seconds that it was taken over
    margin: float | None = None
    first_steps: float = 0.0  # seconds beyond the typical ones
    stops: tuple[Stop, ...] = ()

    def with_stops(self) -> Pace:
        """Return the pace with the single stops in it, where the program makes them and not chance."""
        longer = 1.0 + sum(stop.seconds for stop in self.stops) / self.total
        return replace(self, seconds=longer * self.seconds, step_seconds=longer * self.step_seconds, stops=())


def loop_time(state: RunState, report: Report) -> LoopTime:
    """Return the loop's time of a run; without stretches where no step has a time."""
    main = state.main
    marks = _marks(main)
    if len(marks) < 2:
        return LoopTime()
    pairs = [(a, b) for a, b in pairwise(marks) if b[1] > a[1]]
    seconds = [max(0.0, b[0] - a[0]) for a, b in pairs]
    # An evaluation after the last step is one of the loop's, unless it is longer than those.
    seconds[-1] += max(0.0, sum(main.wall.trailing.values()) - sum(report.wall.afterwards.values()))
    first = main.opening[0].index if main.opening else main.start_step + 1
    work: dict[str, list[float]] = {}
    counted = report.throughput.counted or 1.0
    for unit, place, known in (
        ("token", 2, report.throughput.tokens_per_second),
        ("sample", 3, report.throughput.samples_per_second),
    ):
        if known:
            work[unit] = [(b[place] - a[place]) / counted for a, b in pairs]
    for unit, name in COLLECTED.items():
        if name in main.metrics:
            sums = _sums_by([first + mark[1] for mark in marks], main.metrics[name])
            work[unit] = [after - before for before, after in pairwise(sums)]
    return LoopTime(
        seconds=seconds,
        steps=[b[1] - a[1] for a, b in pairs],
        work={unit: amounts for unit, amounts in work.items() if sum(amounts) > 0.0 and len(amounts) == len(pairs)},
        first=first,
        opening=_opening(main, marks[0][0]),
        waited=_waited(state),
    )


def _marks(main: RankState) -> list[Mark]:
    pace = main.pace
    if pace.start is None or pace.end is None:
        return []
    marks = pace.whole
    if pace.steps > marks[-1][1]:  # the newest stretch is not complete
        marks.append((pace.end, pace.steps, pace.tokens, pace.samples, pace.uncounted))
    return [(min(first_cycle(main)[0], pace.start), *marks[0][1:]), *marks[1:]]


def _sums_by(steps: Sequence[int], column: Column) -> list[float]:
    """Return the sum of a metric before each of these steps."""
    history = column.settled().history
    ends = (history.index + 1) * history.width
    sums: list[float] = np.interp(steps, [steps[0], *ends], [0.0, *history.of("total").cumsum()]).tolist()
    return sums


def _opening(main: RankState, begin: float) -> list[float]:
    ends = [step.start + step.duration for step in main.opening if step.thread is None]
    return [max(0.0, after - before) for before, after in pairwise([begin, *ends])]


def _waited(state: RunState) -> float:
    begin, end = state.main.wall.first_step or 0.0, state.main.wall.last_step or math.inf
    rows = [lost_share(reading) for reading in state.host if begin <= reading.t <= end]
    return fmean(rows) if rows else 0.0


def pace_of(loop: LoopTime, unit: str) -> Pace | None:
    """Return the pace of a loop in a unit of `UNITS`, or in steps; None where it has no time, or none of this work."""
    work = [float(steps) for steps in loop.steps] if unit == STEP_UNIT else loop.work.get(unit, [])
    if not sum(work) or not sum(loop.seconds):
        return None
    seconds = list(loop.seconds)
    typical = median(took / steps for took, steps in zip(seconds, loop.steps, strict=True))
    typical = typical or sum(seconds) / sum(loop.steps)
    first_steps = _take_first_steps(seconds, loop, typical)
    beyond = [took - typical * steps for took, steps in zip(seconds, loop.steps, strict=True)]
    stops = _single_stops(beyond, typical)
    for at in stops:
        seconds[at] -= beyond[at]
    rows = list(zip(seconds, loop.steps, work, strict=True))
    blocks = _blocks(rows, [0.0 if at in stops else late for at, late in enumerate(beyond)], typical)
    total, done, units = (sum(block[place] for block in blocks) for place in range(3))
    if not units or total <= 0.0:
        return None
    ends = [loop.first + count - 1 for count in accumulate(loop.steps)]
    return Pace(
        seconds=total / units,
        step_seconds=total / done,
        total=total,
        margin=_margin([(took, amount) for took, _, amount in blocks]) if len(rows) >= MIN_STRETCHES else None,
        first_steps=first_steps,
        stops=tuple(Stop(ends[at], beyond[at]) for at in stops),
    )


def _take_first_steps(seconds: list[float], loop: LoopTime, typical: float) -> float:
    """Take what the first steps have beyond the typical one out of their stretches. Return it."""
    ends, taken = list(accumulate(loop.steps)), 0.0
    for number, took in enumerate(loop.opening):
        if took < MIN_FIRST_RATIO * typical:
            break
        at = min(bisect(ends, number), len(ends) - 1)
        part = min(took - typical, seconds[at])
        seconds[at] -= part
        taken += part
    return taken


def _single_stops(beyond: list[float], typical: float) -> list[int]:
    """Return the one or two stretches that are far longer than all others."""
    longest = sorted(range(len(beyond)), key=lambda at: -beyond[at])
    return longest[: len(far_beyond([typical + max(0.0, beyond[at]) for at in longest[: MIN_STOPS + 1]]))]


Block = tuple[float, int, float]  # seconds, steps, units of work


def _blocks(rows: list[Block], beyond: list[float], typical: float) -> list[Block]:
    """Return consecutive blocks: whole cycles where long stops come in a rhythm, else of equally many stretches."""
    long = [at for at, seconds in enumerate(beyond) if seconds >= (MIN_STOP_RATIO - 1.0) * typical]
    if len(long) >= MIN_STOPS:
        third = sorted((beyond[at] for at in long), reverse=True)[MIN_STOPS - 1]
        cuts = [at + 1 for at in long if beyond[at] >= ALIKE_STOP * third]
        if is_rhythm(cuts):
            return _joined(_cycles(rows, cuts))
    return _joined([(row,) for row in rows])


def _cycles(rows: list[Block], cuts: list[int]) -> list[tuple[Block, ...]]:
    """Return the rows between the cuts; what follows the last one counts unless it is the begin of a further cycle."""
    cycles = [tuple(rows[a:b]) for a, b in pairwise([0, *cuts])]
    tail = tuple(rows[cuts[-1] :])
    longest = max(sum(steps for _, steps, _ in cycle) for cycle in cycles)
    if sum(steps for _, steps, _ in tail) > MAX_UNEVEN_TAIL * longest:
        cycles.append(tail)
    return cycles


def _joined(parts: Sequence[tuple[Block, ...]], most: int = MAX_BLOCKS) -> list[Block]:
    """Return the sums of consecutive parts, of at most so many groups."""
    count = min(most, len(parts))
    edges = [at * len(parts) // count for at in range(count + 1)]
    groups = ([row for part in parts[a:b] for row in part] for a, b in pairwise(edges))
    return [(sum(r[0] for r in rows), sum(r[1] for r in rows), sum(r[2] for r in rows)) for rows in groups]


def _margin(blocks: list[tuple[float, float]]) -> float | None:
    """Return the margin of seconds for work by how much blocks differ: single ones, or pairs of them.

    Where the machine is slow for a while, blocks beside each other are alike, and single ones say too little.
    """
    pairs = [(a + c, b + d) for (a, b), (c, d) in zip(blocks[::2], blocks[1::2], strict=False)]
    known = [_margin_of(rows) for rows in (blocks, pairs) if len(rows) >= MIN_BLOCKS]
    return max(known, default=None)


def _margin_of(blocks: list[tuple[float, float]]) -> float:
    count, took, units = len(blocks), sum(a for a, _ in blocks), sum(b for _, b in blocks)
    squares = sum((a - took / units * b) ** 2 for a, b in blocks)
    return T99.get(count - 1, LEAST_T99) * math.sqrt(squares * count / (count - 1)) / took
