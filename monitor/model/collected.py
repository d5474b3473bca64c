"""Rates of what reinforcement learning collects: environment steps, episodes, completions, generated tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.steps.series import Column
from trainhooks.protocol.vocabulary import DECODE_STEPS, ENV_STEPS, EPISODES

SECONDS_PER_HOUR = 3600


@dataclass(slots=True)
class Collected:
    """Rates of what reinforcement learning collects to train on, since the first step; None: it collects none."""

    env_steps_per_second: float | None = None
    episodes_per_second: float | None = None
    completions_per_second: float | None = None
    generated_tokens_per_second: float | None = None
    cost_per_1000_completions: float | None = None  # where the price of the machine is known

    @property
    def is_any(self) -> bool:
        """Return whether the run steps environments or writes completions."""
        return self.env_steps_per_second is not None or self.completions_per_second is not None


def collected_rates(metrics: Mapping[str, Column], seconds: float | None, price: float | None) -> Collected:
    """Return the rates since the first step.

    Args:
        metrics: of the run, by name.
        seconds: since the first step, or what was collected first; None or 0: unknown.
        price: of the machine, per hour; None: unknown.
    """
    rates = Collected()
    if not seconds:
        return rates

    def rate(name: str) -> float | None:
        column = metrics.get(name)
        return None if column is None else column.settled().sum / seconds

    rates.env_steps_per_second = rate(ENV_STEPS)
    rates.episodes_per_second = rate(EPISODES)
    rates.completions_per_second = rate("completions")
    if DECODE_STEPS in metrics:  # else padding behind the ends of answers is counted, too
        rates.generated_tokens_per_second = rate("new_tokens")
    if price is not None and rates.completions_per_second:
        rates.cost_per_1000_completions = price / SECONDS_PER_HOUR * 1000 / rates.completions_per_second
    return rates
