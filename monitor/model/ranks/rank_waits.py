"""Ranks compared: the duration of their steps, and which rank the others wait for. Pure.

In synchronous training all ranks take the same time from step to step, because an early rank waits in a collective:
gradients are reduced while `backward` runs. So the slowest rank is not the one with the longest step, but the one that
waits least there. The wait of a rank is its time in phases with collectives beyond the shortest of all ranks at the
same step. It is a lower bound: where backward itself is slow on a rank, the others' waits count as work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from monitor.arrays import FloatArray, np
from monitor.model.device.device_steps import timed_parts
from monitor.model.ranks.arrivals import RankCalls
from monitor.model.ranks.rank_samples import RankSamples
from monitor.model.steps.series import Spread
from monitor.step_blocks import OTHER, StepBlock
from trainhooks.protocol.events import GpuTime, Span
from trainhooks.protocol.vocabulary import BETWEEN_STEPS

# The late rank by the device's clock: the last one to arrive in a collective.
#
# Each rank times a sample of its own steps, so ranks are compared by their median times, not step by step. Where a rank
# arrives late, the others' devices wait in the phases with collectives, which are longer by what the late rank takes
# longer elsewhere. Only a difference that shows in both counts.

# Phases in which ranks wait for each other. Under FSDP ranks also wait in `forward`: waits are then underestimated.
COLLECTIVE_PHASES = frozenset(
    ("backward", "optimizer", "all_reduce", "allreduce", "reduce_scatter", "all_gather", "weight_sync", "barrier")
)
MIN_TIMED_STEPS = 12  # of each rank, for a reliable median
MAX_STEP_SPREAD = 0.25  # of a step: ranks whose steps differ by more are not synchronous
MIN_CONFIRMED_SHARE = 0.5  # of the others' waits: the late rank's phases must be longer by this much


@dataclass(slots=True)
class DeviceSteps:
    """One rank's newest timed steps."""

    taken: int = 0
    latest: list[dict[str, float]] = field(default_factory=list)  # seconds by phase, `other` among them

    def add(self, timing: GpuTime) -> None:
        if not timing.seconds:
            return
        self.taken += 1
        if self.taken <= FIRST_STEPS:
            return
        self.latest.append(timed_parts(timing))
        del self.latest[:-RANK_WINDOW]

    def typical(self) -> dict[str, float]:
        names = dict.fromkeys(name for row in self.latest for name in row)
        return {name: median(row.get(name, 0.0) for row in self.latest) for name in names}


@dataclass(frozen=True, slots=True)
class LateRank:
    """The rank that the others wait for."""

    rank: int
    seconds: float  # a step that the others wait, lower bound
    share: float  # of a step
    longer: Longer
    steps: int  # timed steps of the rank with the fewest


@dataclass(frozen=True, slots=True)
class Longer:
    """The phase in which a rank takes longer than the others."""

    phase: str
    seconds: float  # of a typical step
    others: float  # the same of the other ranks, mean


def typical_steps(ranks: Mapping[int, DeviceSteps]) -> dict[int, dict[str, float]]:
    """Return the median step of each rank, by phase; empty before enough steps of every rank were timed."""
    if len(ranks) < 2 or any(len(stats.latest) < MIN_TIMED_STEPS for stats in ranks.values()):
        return {}
    return {rank: stats.typical() for rank, stats in ranks.items()}


def wait_by_rank(typical: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    """Return the seconds of a typical step that each rank waits: its time in collectives beyond the shortest."""
    shared = {rank: _collective_seconds(row) for rank, row in typical.items()}
    least = min(shared.values(), default=0.0)
    return {rank: seconds - least for rank, seconds in shared.items()}


def late_rank(typical: Mapping[int, Mapping[str, float]], steps: int) -> LateRank | None:
    """Return the late rank by these typical steps; None: there is none.

    Args:
        steps: the number of timed steps of the rank with the fewest.
    """
    if not typical:
        return None
    lengths = [sum(row.values()) for row in typical.values()]
    period = fmean(lengths)
    if period <= 0 or max(lengths) - min(lengths) > MAX_STEP_SPREAD * period:
        return None
    waits = wait_by_rank(typical)
    rank = min(waits, key=lambda candidate: waits[candidate])
    wait = fmean(seconds for other, seconds in waits.items() if other != rank)
    longer = longer_phase(rank, typical, wait)
    if longer is None or wait < MIN_OTHERS_WAIT * period:
        return None
    return LateRank(rank=rank, seconds=wait, share=wait / period, longer=longer, steps=steps)


def longer_phase(rank: int, typical: Mapping[int, Mapping[str, float]], wait: float) -> Longer | None:
    """Return the phase in which a rank takes longer than the others; None where none explains their wait.

    Args:
        typical: seconds of each rank's typical step, by phase.
        wait: seconds of a typical step that the others wait.
    """
    alone = {
        one: {name: seconds for name, seconds in row.items() if name not in COLLECTIVE_PHASES}
        for one, row in typical.items()
    }
    longest = longest_phase(rank, alone)
    if longest is None or longest.seconds - longest.others < MIN_CONFIRMED_SHARE * wait:
        return None
    return longest


def longest_phase(rank: int, own: Mapping[int, Mapping[str, float]]) -> Longer | None:
    """Return the phase in which a rank takes longer than the others by the most seconds; None where it has none.

    Args:
        own: seconds of each rank's step, by phase, without waits.
    """
    others = [row for other, row in own.items() if other != rank]
    phases = [Longer(name, seconds, fmean(row.get(name, 0.0) for row in others)) for name, seconds in own[rank].items()]
    return max(phases, key=lambda phase: phase.seconds - phase.others, default=None)


def _collective_seconds(row: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in row.items() if name in COLLECTIVE_PHASES)


RANK_WINDOW = 64  # steps kept of each rank
FIRST_STEPS = 3  # first steps of a process, left out: every rank compiles, allocates and fills its caches
# Before a rank is named: of two equal ranks one waits less in 24 of 30 steps in one of 1,400 comparisons.
MIN_COMMON_STEPS = 30
MIN_SLOWEST_SHARE = 0.8  # of the steps: in so many the slowest rank waits least
MIN_OTHERS_WAIT = 0.05  # of the time from step to step that the others wait: less may be the scheduler
MAX_OWN_WAIT = 0.25  # of the others' waits: limit for the slowest rank's own wait, and for the difference of periods
MAX_ROLE_PHASES = 200  # names of a role's phases and spans that are kept
MAX_RANK_PHASES = 200  # names of phases of a rank's latest steps
MIN_COLLECTIVE_SHARE = 0.01  # of the time from step to step in such phases: with less no waits show there


@dataclass(slots=True)
class RoleWork:
    """What the role of one rank does."""

    role: str
    first: float  # begin of its first step
    last: float = 0.0  # end of its newest one
    steps: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, `other` and spans between the steps among them

    def add_steps(self, block: StepBlock) -> None:
        self.last = float(block.end[-1])
        self.steps += len(block)
        for part in block.parts:
            for name, column in part.seconds.items():
                self.add(name, float(column.sum()))

    def add(self, name: str, seconds: float) -> None:
        if name in self.seconds or len(self.seconds) < MAX_ROLE_PHASES:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(slots=True)
class RankStats:
    """One rank's steps: figures over all of them, and the latest one by one."""

    steps: int = 0
    tokens: int = 0
    samples: int = 0
    uncounted: int = 0  # steps whose work is unknown
    seconds: Spread = field(default_factory=Spread)
    restart: int = 0
    taken: int = 0  # steps of the newest process
    latest: list[tuple[int, float]] = field(default_factory=list)  # index, end
    phases: dict[str, list[float]] = field(default_factory=dict)  # seconds in each of `latest`, and before
    device: DeviceSteps = field(default_factory=DeviceSteps)
    work: RoleWork | None = None  # of the role of its newest steps
    calls: RankCalls = field(default_factory=RankCalls)  # of collectives
    sampled: RankSamples = field(default_factory=RankSamples)

    def add(self, block: StepBlock, restart: int, role: str | None = None) -> None:
        self.steps += len(block)
        self.tokens += _sum(block.amounts.get("tokens"))
        self.samples += _sum(block.amounts.get("samples"))
        if block.uncounted is not None:
            self.uncounted += int(block.uncounted.sum())
        if block.is_timed:
            self.seconds.extend(block.index, block.duration)
        if block.thread is not None or restart < self.restart:
            return
        if restart > self.restart:
            self.restart, self.taken, self.latest, self.phases = restart, 0, [], {}
        if role := block.role or role:
            self._add_role(block, role)
        cold = min(len(block), max(0, FIRST_STEPS - self.taken))
        self.taken += len(block)
        first = max(cold, len(block) - 2 * RANK_WINDOW)
        self._add_phases(_phase_columns(block, self.latest[-1][1] if self.latest else None), first)
        self.latest += zip(block.index[first:].tolist(), block.end[first:].tolist(), strict=True)
        del self.latest[: -2 * RANK_WINDOW]

    def _add_phases(self, columns: Mapping[str, FloatArray], first: int) -> None:
        for name in columns:
            if name not in self.phases and len(self.phases) < MAX_RANK_PHASES:
                self.phases[name] = [0.0] * len(self.latest)
        for name, kept in self.phases.items():
            new = columns.get(name)
            kept += [0.0] * (len(columns[OTHER]) - first) if new is None else new[first:].tolist()
            del kept[: -2 * RANK_WINDOW]

    def typical(self) -> dict[str, float]:
        """Return the median seconds of the latest steps, by phase, and of what precedes each of them."""
        medians = {name: median(column[-RANK_WINDOW:]) for name, column in self.phases.items() if column}
        return {name: seconds for name, seconds in medians.items() if seconds > 0.0}

    def in_collectives(self) -> list[float]:
        """Return the seconds of each of the latest steps in phases with collectives."""
        columns = [column for name, column in self.phases.items() if name in COLLECTIVE_PHASES]
        return [sum(row) for row in zip(*columns, strict=True)] if columns else [0.0] * len(self.latest)

    def add_span(self, span: Span) -> None:
        if self.work is not None and span.thread is None:
            self.work.add(span.name, span.own_seconds)

    def _add_role(self, block: StepBlock, role: str) -> None:
        if self.work is None or self.work.role != role:
            self.work = RoleWork(role, float(block.start[0]))
        self.work.add_steps(block)


def _sum(amounts: FloatArray | None) -> int:
    return 0 if amounts is None else int(amounts[amounts == amounts].sum())


def _phase_columns(block: StepBlock, before: float | None) -> dict[str, FloatArray]:
    """Return the seconds of each step by phase, and of the time before it.

    Args:
        before: when the last step of the blocks before ended; None: unknown.
    """
    columns = {OTHER: np.zeros(len(block))}
    for part in block.parts:
        at = slice(None) if part.at is None else part.at
        for name, seconds in part.seconds.items():
            columns.setdefault(name, np.zeros(len(block)))[at] += seconds
    ended = np.concatenate(([block.start[0] if before is None else before], block.end[:-1]))
    columns[BETWEEN_STEPS] = np.maximum(0.0, block.start - ended)
    return columns


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The waits of the ranks in the latest steps that all of them have done."""

    steps: int
    waits: dict[int, float]  # mean seconds a step that each rank waits for others
    typical: dict[int, float]  # the same as a median, which a single long step does not change
    period: float  # seconds from step to step, the base of all shares
    slowest: int | None  # the rank that the others wait for, where that is clear
    seconds: float  # typical seconds a step that the others wait
    share: float  # the same, of the time from step to step


def compare_ranks(ranks: Mapping[int, RankStats]) -> RankComparison | None:
    """Return who waits for whom; None: unknown, with one rank, no common steps, no common pace, or several roles."""
    roles = {None if stats.work is None else stats.work.role for stats in ranks.values()}
    if len(ranks) < 2 or len(roles) > 1 or len({stats.restart for stats in ranks.values()}) > 1:
        return None
    rows = {
        rank: {index: (end, shared) for (index, end), shared in zip(stats.latest, stats.in_collectives(), strict=True)}
        for rank, stats in ranks.items()
    }
    common = sorted(set.intersection(*(set(row) for row in rows.values())))[-RANK_WINDOW:]
    steps = len(common) - 1
    if steps < 1 or common[-1] - common[0] != steps:
        return None
    periods = [(row[common[-1]][0] - row[common[0]][0]) / steps for row in rows.values()]
    period = fmean(periods)
    shared = {rank: [row[index][1] for index in common[1:]] for rank, row in rows.items()}
    if period <= 0 or any(fmean(seconds) < MIN_COLLECTIVE_SHARE * period for seconds in shared.values()):
        return None
    least = [min(column) for column in zip(*shared.values(), strict=True)]
    waits = {
        rank: fmean(mine - low for mine, low in zip(seconds, least, strict=True)) for rank, seconds in shared.items()
    }
    slowest = min(waits, key=lambda rank: waits[rank])
    others = fmean(wait for rank, wait in waits.items() if rank != slowest)
    if max(periods) - min(periods) > max(MAX_OWN_WAIT * others, MIN_COLLECTIVE_SHARE * period):
        return None  # not synchronous: no rank waits for another
    # The median decides, not the mean: a single long step does not make a rank slow.
    typical_waits = {rank: _typical_wait(seconds, least) for rank, seconds in shared.items()}
    typical = fmean(wait for rank, wait in typical_waits.items() if rank != slowest)
    times_least = sum(mine <= low for mine, low in zip(shared[slowest], least, strict=True))
    clear = (
        steps >= MIN_COMMON_STEPS
        and typical >= MIN_OTHERS_WAIT * period
        and waits[slowest] <= MAX_OWN_WAIT * others
        and times_least >= MIN_SLOWEST_SHARE * steps
    )
    return RankComparison(
        steps=steps,
        waits=waits,
        typical=typical_waits,
        period=period,
        slowest=slowest if clear else None,
        seconds=typical,
        share=typical / period,
    )


def _typical_wait(mine: Sequence[float], least: Sequence[float]) -> float:
    return median(seconds - low for seconds, low in zip(mine, least, strict=True))
