"""The details of a view, read off the state. Pure, and short: it is done for every view."""

from __future__ import annotations

import math
from statistics import median

from monitor.model import account
from monitor.model.baseline import Baseline
from monitor.model.detail_rows import Details, GpuDetail, KindRow
from monitor.model.device_use import tells_phases
from monitor.model.devices import ours
from monitor.model.held_back import HeldBack, held_back
from monitor.model.series import STEP, Durations, Quantiles
from monitor.model.state import Figures, RunState

MAX_KINDS = 20  # roles and stages told of; more fit on no screen
MAX_PLACES = 8  # in a program, for each thing that was open
MAX_BARS = 48  # of a distribution


def details(state: RunState, over: bool) -> Details:
    """What the screens beside the overview show.

    Args:
        over: whether the run has ended; then nothing goes on.
    """
    main = state.main
    lead = min(account.trainings(state), key=lambda each: each.rank, default=None)
    return Details(
        steps=tuple(main.latest),
        timed=tuple(main.timed),
        spans=tuple(main.marks),
        held_back=_held_back(state, over),
        gpus=_gpus(state),
        host=tuple(state.host),
        kinds=_kinds(main),
        distributions=_distributions(main.device.phases if tells_phases(main.device) else _host_phases(main)),
        host_distributions=_distributions(_host_phases(main)),
        frames={where: _most_seen(table) for where, table in main.frames.items()},
        wall_offset=lead.wall_offset if lead is not None else None,
    )


def _host_phases(main: Figures) -> dict[str, Durations]:
    return {name: stats.seconds for name, stats in main.phases.items()}


def _distributions(phases: dict[str, Durations]) -> dict[str, list[tuple[float, int]]]:
    return {name: distribution(column.digested().quantiles) for name, column in phases.items()}


def _held_back(state: RunState, over: bool) -> tuple[HeldBack, ...]:
    if not any(watch.episodes.all() for watch in state.throttles.gpus.values()):
        return ()
    return tuple(held_back(state.throttles, state.main.timelines, over, ours(state)))


def _gpus(state: RunState) -> dict[str, GpuDetail]:
    found = {}
    for uuid, readings in state.gpus.items():
        watch = state.throttles.gpus.get(uuid)
        if watch is None:
            found[uuid] = GpuDetail(tuple(readings))
            continue
        link = watch.link
        lanes = (link.generation, link.generation_max, link.lanes, link.lanes_max)
        found[uuid] = GpuDetail(tuple(readings), watch.reference.clock, lanes)
    return found


def _kinds(main: Figures) -> tuple[KindRow, ...]:
    """The kinds of step, where there is more than one: of a single one the whole run tells more."""
    if len(main.baselines) < 2:
        return ()
    return tuple(_kind(name, baseline) for name, baseline in list(main.baselines.items())[:MAX_KINDS])


def _kind(name: str, baseline: Baseline) -> KindRow:
    role, _, stage = name.partition("\n")
    durations = baseline.durations
    seconds = median(durations) if durations else math.nan
    return KindRow(role or None, stage or None, baseline.seen, len(durations), seconds, baseline.usual_phases())


def _most_seen(table: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(table.items(), key=lambda row: -row[1])[:MAX_PLACES]


def distribution(quantiles: Quantiles) -> list[tuple[float, int]]:
    """How many numbers lie in each bar: where it begins and its count. Bars are of equal width in the logarithm."""
    if not quantiles.bins:
        return []
    first, last = min(quantiles.bins), max(quantiles.bins)
    wide = 1 + (last - first) // MAX_BARS
    bars = [0] * (1 + (last - first) // wide)
    for bin_, count in quantiles.bins.items():
        bars[(bin_ - first) // wide] += count
    return [(STEP ** (first + index * wide), count) for index, count in enumerate(bars)]
