"""The rows of the ranks in a report, and the rank that the others wait for. Pure."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from monitor.model import wall_time
from monitor.model.device.device_use import uses_device
from monitor.model.ranks.arrivals import Arrivals, compare_arrivals
from monitor.model.ranks.rank_samples import alone_at_work, late_stage
from monitor.model.ranks.rank_waits import (
    Longer,
    RankComparison,
    late_rank,
    longer_phase,
    longest_phase,
    typical_steps,
    wait_by_rank,
)
from monitor.model.report import CollectivesRow, RankRow, Straggler
from monitor.model.state import RankState, RunState
from monitor.model.steps.unnamed_time import UNNAMED


def device_ranks(state: RunState) -> dict[int, dict[str, float]]:
    """Return each rank's typical step by the device's clock."""
    return typical_steps({rank: stats.device for rank, stats in state.ranks.items()}) if uses_device(state) else {}


def arrivals(state: RunState) -> Arrivals | None:
    """Return which rank arrives last in collectives, by the times of the calls; a device's queue hides them."""
    if uses_device(state) or len(state.ranks) < 2:
        return None
    hosts = {producer.rank: producer.host for producer in wall_time.training_processes(state)}
    return compare_arrivals({rank: stats.calls for rank, stats in state.ranks.items()}, hosts)


def collectives_row(state: RunState, called: Arrivals | None) -> CollectivesRow | None:
    """Return what the collectives of a step take; None where it is unknown."""
    if called is None:
        return None
    return CollectivesRow(
        steps=called.steps,
        calls=called.calls,
        bytes=called.size,
        transfer_seconds=called.transfer,
        wait_seconds=fmean(called.waits.values()),
        wait_outside=called.outside.get(state.main.rank, 0.0),
        period=called.period,
    )


def rank_rows(
    state: RunState,
    comparison: RankComparison | None,
    called: Arrivals | None,
    typical: dict[int, dict[str, float]],
    late: Straggler | None,
) -> list[RankRow]:
    """Return a row for each rank of the run.

    Args:
        called: the waits by the times of the calls, where they are known.
        typical: each rank's typical step by the device's clock; empty without one.
        late: the rank that the others wait for.
    """
    # On a GPU the host runs ahead and waits wherever it needs a result: only a clear straggler is reported.
    figures = comparison is not None and (comparison.slowest is not None or not state.gpus)
    known = comparison if figures else None
    printed = state.main if state.main.source == "console" else RankState()
    hosts = {producer.rank: producer.host for producer in wall_time.training_processes(state)}
    are_apart = len(set(hosts.values())) > 1
    rows = []
    for rank in sorted(hosts):
        stats = state.ranks.get(rank)
        times = printed.step_seconds if stats is None else stats.seconds
        steps = printed.steps_ok + sum(printed.skipped.values()) if stats is None else stats.steps
        row = RankRow(rank, times.settled().quantiles.at(0.5)[0] or None, steps=steps)
        row.host = hosts[rank] if are_apart else None
        if known is not None:
            row.wait_seconds, row.usual_wait = known.waits.get(rank), known.typical.get(rank)
            row.wait_share = None if row.usual_wait is None else row.usual_wait / known.period
        row.phases = {} if stats is None else stats.typical()
        if called is not None and called.tells_ranks_apart and rank in called.waits:
            row.wait_seconds = row.usual_wait = called.waits[rank]
            row.wait_share = called.waits[rank] / called.period
            # Waits are means there: beside medians a rank that is late now and then would wait longer than a step.
            row.is_mean, row.step_seconds = True, called.period
            row.phases = {name: seconds for name, seconds in called.phases[rank].items() if seconds > 0.0}
            if late is not None and late.basis == "samples" and stats is not None:
                row.wait_share = max(0.0, stats.sampled.together() - state.ranks[late.rank].sampled.together())
                row.wait_seconds = row.usual_wait = row.wait_share * called.period
        rows.append(row)
    waiting = None if late is None else wait_by_rank(typical)
    return [_by_device(row, typical, waiting) if row.rank in typical else row for row in rows]


def _by_device(row: RankRow, typical: dict[int, dict[str, float]], waiting: dict[int, float] | None) -> RankRow:
    """Return a rank by the device's clock; waits are set only where the late rank is clear."""
    seconds = sum(typical[row.rank].values())
    wait = None if waiting is None else waiting[row.rank]
    share = None if wait is None or seconds <= 0 else wait / seconds
    return RankRow(
        rank=row.rank,
        step_seconds=seconds,
        wait_seconds=wait,
        steps=row.steps,
        usual_wait=wait,
        wait_share=share,
        clock="cuda",
        phases=typical[row.rank],
        host=row.host,
    )


def find_straggler(
    state: RunState,
    comparison: RankComparison | None,
    called: Arrivals | None,
    typical: dict[int, dict[str, float]],
) -> Straggler | None:
    """Return the rank that the others wait for, and where; None where there is none, or none is clear."""
    found = _find_straggler(state, comparison, called, typical)
    if found is not None and found.culprit is not None:
        phases = UNNAMED if found.culprit in UNNAMED else (found.culprit,)
        others = [stats.sampled for rank, stats in state.ranks.items() if rank != found.rank and stats.sampled.looks]
        place = state.ranks[found.rank].sampled.place(*phases, others=others)
        found.place = None if place is None else str(place)
    return found


def _find_straggler(
    state: RunState,
    comparison: RankComparison | None,
    called: Arrivals | None,
    typical: dict[int, dict[str, float]],
) -> Straggler | None:
    if called is not None and called.tells_ranks_apart:
        if called.late is None:
            return _alone(state, called)
        longer = longest_phase(called.late, called.own)
        found = _straggler(called.late, called.seconds, called.seconds / called.period, called.steps, longer)
        return replace(found, basis="calls", late_steps=called.late_steps)
    if stage := _late_stage(state):
        return stage
    if uses_device(state):
        late = late_rank(typical, min((len(state.ranks[rank].device.latest) for rank in typical), default=0))
        return None if late is None else _straggler(late.rank, late.seconds, late.share, late.steps, late.longer)
    if comparison is None or comparison.slowest is None:
        return None
    rank, seconds = comparison.slowest, comparison.seconds
    longer = longer_phase(rank, {one: stats.typical() for one, stats in state.ranks.items()}, seconds)
    if state.gpus and longer is not None and longer.phase != "data":
        longer = None  # the host's clock tells where the host waits for the GPU; but for data it waits itself
    return _straggler(rank, seconds, comparison.share, comparison.steps, longer)


def _alone(state: RunState, called: Arrivals) -> Straggler | None:
    """Return the rank that does something now and then, for which the others wait."""
    found = alone_at_work({rank: stats.sampled for rank, stats in state.ranks.items()})
    if found is None:
        return None
    rank, part = found
    shares = {one: stats.sampled.alone() for one, stats in state.ranks.items()}
    own = {one: {phase: share * called.period for phase, share in row.items()} for one, row in shares.items()}
    steps = min(stats.steps for stats in state.ranks.values())
    return replace(_straggler(rank, part * called.period, part, steps, longest_phase(rank, own)), basis="samples")


def _late_stage(state: RunState) -> Straggler | None:
    """Return the stage of a pipeline that the others wait for."""
    stages = {rank: stats.sampled for rank, stats in state.ranks.items()}
    found = None if uses_device(state) else late_stage(stages)
    if found is None:
        return None
    rank, part = found
    typical = {one: stats.typical() for one, stats in state.ranks.items()}
    period = fmean(sum(row.values()) for row in typical.values())
    steps = min(stats.steps for stats in state.ranks.values())
    own = {one: stages[one].own(row) for one, row in typical.items()}
    return replace(_straggler(rank, part * period, part, steps, longest_phase(rank, own)), basis="samples")


def _straggler(rank: int, seconds: float, share: float, steps: int, longer: Longer | None) -> Straggler:
    found = Straggler(rank=rank, share=share, seconds=seconds, steps=steps)
    if longer is not None:
        found.culprit, found.own_seconds, found.others_seconds = longer.phase, longer.seconds, longer.others
    return found
