"""What works beside the loop: other threads, actors, and ranks with roles that the main rank has not. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from monitor.model.cycle import COLLECT, IDLE_PART, LEARN, REWARD, assigned_part, phase_part
from monitor.model.report import MetricRow
from monitor.model.state import RunState

OTHER_THREADS, ACTORS = "other threads", "actors"


class Beside(NamedTuple):
    """What works beside the loop, of one role."""

    shares: dict[str, float]  # of the time, by part of an iteration; what is left of it is idle
    steps_per_second: float = 0.0  # of all of its processes


def concurrent_roles(state: RunState) -> dict[str, Beside]:
    """Return what works beside the loop, by role."""
    found: dict[str, Beside] = {}
    main, wall = state.main, state.main.wall
    threads = _by_part(main.threads)
    elapsed = (wall.last_step or 0.0) - (wall.first_step or 0.0)
    if elapsed > 0.0 and not threads.keys().isdisjoint((COLLECT, REWARD)):
        found[OTHER_THREADS] = Beside(_shares(threads, elapsed))
    acting = state.acting
    if elapsed > 0.0 and acting is not None and state.are_actors:
        found[ACTORS] = Beside(_shares(_by_part(acting.threads), elapsed))
    known = {kind.role for kind in main.baselines}
    rows: dict[str, list[Beside]] = {}
    of_ranks = (stats.work for rank, stats in state.ranks.items() if rank != main.rank)
    for work in (*of_ranks, *(producer.work for producer in state.producers.values())):
        if work is not None and work.role not in known and work.last > work.first:
            worked = work.last - work.first
            rows.setdefault(work.role, []).append(Beside(_shares(_by_part(work.seconds), worked), work.steps / worked))
    for role, ranks in rows.items():
        parts = dict.fromkeys(part for each in ranks for part in each.shares)
        means = {part: sum(each.shares.get(part, 0.0) for each in ranks) / len(ranks) for part in parts}
        found[role] = Beside(means, sum(each.steps_per_second for each in ranks))
    return found


def _by_part(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each part."""
    found: dict[str, float] = {}
    learns = any(phase_part(name) == LEARN for name in seconds)
    for name, spent in seconds.items():
        if phase_part(name) == IDLE_PART:  # the rest of the time, with what is in no span
            continue
        part = assigned_part(name, learns)
        found[part] = found.get(part, 0.0) + spent
    return found


def _shares(busy: Mapping[str, float], elapsed: float) -> dict[str, float]:
    """Return the parts as shares of the time, and the rest. Of several threads that fill it, by their seconds."""
    claimed = sum(busy.values())
    whole = max(elapsed, claimed)
    return {**{part: spent / whole for part, spent in busy.items()}, IDLE_PART: 1.0 - claimed / whole}


# How old the samples are that steps learn from: the mean, by the names that trainers log (SkyRL, prime-rl, NeMo-RL,
# RLlib, torchforge).
STALENESS_NAMES = (
    r"(?:async/)?(?:(?:mean|avg)_)?(?:staleness|policy_lag|(?:policy_)?version_(?:lag|gap|diff)|(?:sampled_)?policy_age"
    r"|trajectory_age)(?:[_/](?:mean|avg))?|off_policy_level(?:/all)?/mean"
    r"|diff_num_grad_updates_vs_sampler_policy(?:_mean)?"
)
_STALENESS = re.compile(rf"(?:.*/)?(?:{STALENESS_NAMES})", re.IGNORECASE)


def staleness(metrics: Mapping[str, MetricRow]) -> float | None:
    """Return by how many updates the newest samples are older than the weights; None where nobody logs it."""
    rows = (row.last for name, row in metrics.items() if _STALENESS.fullmatch(name))
    return next((last for last in rows if isinstance(last, float) and last >= 0.0), None)
