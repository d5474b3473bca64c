"""Who calls the collectives last, and keeps the others waiting: by the times of the calls on each rank. Pure.

A collective goes on once its last rank has called it. What the others wait until then is the cost of that rank, in
whatever phase they wait. A call that does not block, as DDP's of a bucket, makes nobody wait: what a rank is ahead by
there it is still ahead by at the next call. So a wait counts where the lead ends, at the latest with the phase.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from trainhooks.protocol.events import Collectives

BACKWARD = "backward"
MICROSECOND = 1e-6
MAX_WINDOWS = 8  # of a rank that are kept: of some thirty steps each
MANY_RANKS = 64  # of so many or more ranks, only the newest two
MIN_STEPS = 16  # before ranks are told apart
MIN_LATE_SHARE = 0.05  # of the time from step to step: what the others wait less may be the scheduler
MIN_ERRORS = (
    3.1  # standard errors by which one rank must cost more than the next: of equal ranks one in a thousand does
)


@dataclass(slots=True)
class CallWindow:
    """The calls of a rank in some steps; a column each, in the order of the calls."""

    keys: IntArray  # process group and count in it
    steps: IntArray
    called: FloatArray
    until: FloatArray  # when the next call or phase followed
    places: IntArray  # in `phases`
    sizes: IntArray  # bytes
    phases: list[str]
    seconds: dict[str, float]  # of all steps, by phase, with what lies between them
    count: int  # steps
    period: float  # seconds from step to step


@dataclass(slots=True)
class RankCalls:
    """The newest windows of one rank."""

    restart: int = 0
    windows: list[CallWindow] = field(default_factory=list)

    def add(self, event: Collectives, restart: int, most: int = MAX_WINDOWS) -> None:
        if restart < self.restart:
            return
        if restart > self.restart:
            self.restart, self.windows = restart, []
        if event.calls and event.steps > 0 and event.begin is not None and event.t > event.begin:
            self.windows.append(_window(event, event.begin))
            del self.windows[:-most]


def _window(event: Collectives, begin: float) -> CallWindow:
    kinds, counts, steps, called, until = zip(*event.calls, strict=True)
    groups = [zlib.crc32(group.encode()) & 0x7FFFFFFF for group, *_ in event.kinds]
    phases = list(dict.fromkeys(phase for _, _, phase, _ in event.kinds))
    return CallWindow(
        np.array([groups[kind] << 32 | count & 0xFFFFFFFF for kind, count in zip(kinds, counts, strict=True)]),
        np.array(steps),
        begin + np.array(called) * MICROSECOND,
        begin + np.array(until) * MICROSECOND,
        np.array([phases.index(event.kinds[kind][2]) for kind in kinds]),
        np.array([event.kinds[kind][3] for kind in kinds]),
        phases,
        dict(event.seconds),
        event.steps,
        (event.t - begin) / event.steps,
    )


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Ranks compared over the collectives that all of them have called."""

    steps: int
    period: float  # seconds from step to step, the base of all shares
    waits: dict[int, float]  # mean seconds a step that each rank waits for others
    outside: dict[int, float]  # the same, in other phases than backward
    costs: dict[int, float]  # mean seconds a step that the others wait for each rank
    phases: dict[int, dict[str, float]]  # mean seconds a step of each rank by phase, and between steps
    own: dict[int, dict[str, float]]  # the same without its waits
    late: int | None  # the rank that the others wait for, where that is clear
    late_steps: int  # in which it was
    transfer: float  # mean seconds a step from the last rank's last call in backward to the end of that
    calls: float  # mean number of collectives a step
    size: float  # mean bytes a step

    @property
    def tells_ranks_apart(self) -> bool:
        return self.steps >= MIN_STEPS

    @property
    def seconds(self) -> float:
        """Return what the others wait for the late rank a step."""
        return 0.0 if self.late is None else self.costs[self.late]


@dataclass(slots=True)
class _Columns:
    keys: IntArray
    steps: IntArray
    called: FloatArray
    until: FloatArray
    phases: Any
    sizes: IntArray
    last: BoolArray  # whether another phase follows, not another call

    def at(self, keys: IntArray) -> IntArray:
        order = np.argsort(self.keys)
        found: IntArray = order[np.searchsorted(self.keys, keys, sorter=order)]
        return found


def _columns(windows: list[CallWindow]) -> _Columns:
    called, until = (np.concatenate([getattr(each, name) for each in windows]) for name in ("called", "until"))
    return _Columns(
        np.concatenate([each.keys for each in windows]),
        np.concatenate([each.steps for each in windows]),
        called,
        until,
        np.concatenate([np.array(each.phases)[each.places] for each in windows]),
        np.concatenate([each.sizes for each in windows]),
        np.append(until[:-1] < called[1:], True),
    )


def compare_arrivals(ranks: Mapping[int, RankCalls], hosts: Mapping[int, str | None]) -> Arrivals | None:
    """Return who arrives last; None where it is unknown: other backends, one rank, too few calls in common.

    Args:
        hosts: of the ranks; the clocks of two of them are compared by the ends of what their ranks did together.
    """
    if len(ranks) < 2 or not all(calls.windows for calls in ranks.values()):
        return None
    if len({calls.restart for calls in ranks.values()}) > 1:
        return None
    columns = {rank: _columns(calls.windows) for rank, calls in ranks.items()}
    common: IntArray = reduce(np.intersect1d, [each.keys for each in columns.values()])
    first = next(iter(columns.values()))
    if not len(common):
        return None
    common = common[np.argsort(first.called[first.at(common)])]
    places = {rank: each.at(common) for rank, each in columns.items()}
    step_of = first.steps[places[next(iter(ranks))]]
    numbers, step_of = np.unique(step_of, return_inverse=True)
    steps = len(numbers)
    period = float(np.mean([window.period for calls in ranks.values() for window in calls.windows]))
    if period <= 0.0:
        return None
    called = np.stack([each.called[places[rank]] for rank, each in columns.items()])
    last = np.stack([each.last[places[rank]] for rank, each in columns.items()])
    shift = _clocks(columns, places, last, hosts)
    called -= shift
    arrived = called.max(axis=0)
    lead = arrived - called
    following = np.concatenate([lead[:, 1:], np.zeros((len(ranks), 1))], axis=1)
    waited = np.where(last, lead, np.maximum(0.0, lead - following))
    for_others = waited.sum(axis=0) / (len(ranks) - 1)
    latest = called.argmax(axis=0)
    charged = np.zeros((len(ranks), steps))
    np.add.at(charged, (latest, step_of), for_others)
    order = list(columns)
    costs = {rank: float(row.mean()) for rank, row in zip(order, charged, strict=True)}
    late, late_steps = _late(charged, order, period)
    means = {rank: _means(calls.windows) for rank, calls in ranks.items()}
    own: dict[int, dict[str, float]] = {}
    outside: dict[int, float] = {}
    tails = []
    for place, (rank, each) in enumerate(columns.items()):
        phases = each.phases[places[rank]]
        own[rank] = {
            phase: max(0.0, seconds - float(waited[place][phases == phase].sum()) / steps)
            for phase, seconds in means[rank].items()
        }
        ends = last[place] & (phases == BACKWARD)
        outside[rank] = float(waited[place][phases != BACKWARD].sum()) / steps
        tail = np.maximum(0.0, each.until[places[rank]] - shift[place] - arrived)[ends]
        tails.append(float(tail.sum()) / steps)
    return Arrivals(
        steps=steps,
        period=period,
        waits={rank: float(row.sum()) / steps for rank, row in zip(order, waited, strict=True)},
        outside=outside,
        costs=costs,
        phases=means,
        own=own,
        late=late,
        late_steps=late_steps,
        transfer=min(tails),
        calls=len(common) / steps,
        size=float(first.sizes[places[order[0]]].sum()) / steps,
    )


def _clocks(
    columns: Mapping[int, _Columns], places: Mapping[int, IntArray], last: BoolArray, hosts: Mapping[int, str | None]
) -> FloatArray:
    """Return by how much each rank's clock is ahead of the first one's, a row each: 0 on the same host."""
    first = next(iter(columns))
    shift = np.zeros((len(columns), 1))
    ended = columns[first].until[places[first]]
    for place, (rank, each) in enumerate(columns.items()):
        both = last[0] & last[place]
        if hosts.get(rank) != hosts.get(first) and both.any():
            shift[place] = np.median((each.until[places[rank]] - ended)[both])
    return shift


def _late(charged: FloatArray, order: list[int], period: float) -> tuple[int | None, int]:
    """Return the rank that the others wait for, and in how many steps; None where it may be chance, or little."""
    costs = charged.mean(axis=1)
    ranked = np.argsort(costs)
    slowest, second = int(ranked[-1]), int(ranked[-2])
    steps = int(((charged.argmax(axis=0) == slowest) & (charged[slowest] >= MIN_LATE_SHARE * period)).sum())
    more = charged[slowest] - charged[second]
    if len(more) < MIN_STEPS:
        return None, steps
    mean, error = float(more.mean()), float(more.std(ddof=1)) / len(more) ** 0.5
    clear = mean >= MIN_LATE_SHARE * period and mean > MIN_ERRORS * error
    return (order[slowest] if clear else None), steps


def _means(windows: list[CallWindow]) -> dict[str, float]:
    """Return the mean seconds a step by phase."""
    count = sum(window.count for window in windows)
    found: dict[str, float] = {}
    for window in windows:
        for phase, seconds in window.seconds.items():
            found[phase] = found.get(phase, 0.0) + seconds / count
    return found
