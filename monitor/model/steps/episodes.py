"""Episodes of a step as values of their own, of which the hooks send the number, the mean and the extremes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainhooks.protocol.vocabulary import EPISODE_FIGURES, EPISODES, HIGHEST, LOWEST

MAX_EPISODES = 100_000  # of a step, each with a value: 10,000 environments end a few each


def episode_values(name: str, values: Mapping[str, Any]) -> list[Any]:
    """Return the values that a metric of one step stands for: for a mean over episodes, one an episode.

    Their number, sum, lowest and highest are those of the episodes.

    Args:
        values: the metrics of the step.
    """
    value = values.get(name)
    if name not in EPISODE_FIGURES or EPISODES not in values:
        return [value]
    mean, count, low, high = (_finite(values.get(one)) for one in (name, EPISODES, name + LOWEST, name + HIGHEST))
    if mean is None or count is None or low is None or high is None or count < 2:
        return [value]
    others = min(int(count), MAX_EPISODES) - 2
    return [low, high, *[(mean * (others + 2) - low - high) / others if others else 0.0] * others]


def _finite(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None
