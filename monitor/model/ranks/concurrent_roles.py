"""What works beside the loop: other threads, actors, and ranks with roles that the main rank has not. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from monitor.model.cycle import COLLECT, IDLE_PART, LEARN, REWARD, assigned_part, phase_part
from monitor.model.report import MetricRow
from monitor.model.state import RunState

OTHER_THREADS, ACTORS = "other threads", "actors"


def concurrent_roles(state: RunState) -> dict[str, dict[str, float]]:
    """Return the share of the time of each part of an iteration, by role; what is left of the time is idle."""
    found: dict[str, dict[str, float]] = {}
    main, wall = state.main, state.main.wall
    threads = _by_part(main.threads)
    elapsed = (wall.last_step or 0.0) - (wall.first_step or 0.0)
    if elapsed > 0.0 and not threads.keys().isdisjoint((COLLECT, REWARD)):
        found[OTHER_THREADS] = _shares(threads, elapsed)
    acting = state.acting
    if elapsed > 0.0 and acting is not None and state.are_actors:
        found[ACTORS] = _shares(_by_part(acting.threads), elapsed)
    known = {kind.role for kind in main.baselines}
    rows: dict[str, list[dict[str, float]]] = {}
    for stats in state.ranks.values():
        work = stats.work
        if work is not None and work.role not in known and work.last > work.first:
            rows.setdefault(work.role, []).append(_shares(_by_part(work.seconds), work.last - work.first))
    for role, ranks in rows.items():
        parts = dict.fromkeys(part for shares in ranks for part in shares)
        found[role] = {part: sum(shares.get(part, 0.0) for shares in ranks) / len(ranks) for part in parts}
    return found


def _by_part(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each part."""
    found: dict[str, float] = {}
    learns = any(phase_part(name) == LEARN for name in seconds)
    for name, spent in seconds.items():
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
