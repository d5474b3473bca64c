"""Fast and worthless: a loss that is no number, a reward or a loss that never changes. Pure."""

from __future__ import annotations

import re

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding, MetricRow

ENOUGH_REWARDS = 50  # a policy that never earns may need some tens of steps to find its first reward
ENOUGH_LOSSES = 30  # logged values; a loss that learns differs in the third digit long before
ENOUGH_DIGITS = 4  # of a printed loss; in the third digit it differs within tens of values, if it learns
SAME = 1e-9  # of its size: what rounding alone makes of a constant

# Whole words of a metric's name, so that `reward_std` or `loss_scale` are not taken for the thing itself.
_LOSS = re.compile(r"(?:^|[/_. ])loss$|^loss[/_.]", re.IGNORECASE)
_SCALE = re.compile(r"scale|weight|coef|std|var|seconds", re.IGNORECASE)
_REWARD = re.compile(
    r"(?:^|[/_. ])(?:rewards?|returns?|score)(?:[/_. ]?mean)?$|(?:^|/)rewards?/[^/]+(?:/mean)?$", re.IGNORECASE
)


def nonfinite_loss(evidence: Evidence) -> Finding | None:
    for name, row in evidence.report.metrics.items():
        if row.nonfinite and _LOSS.search(name) and not _SCALE.search(name):
            now = isinstance(row.last, str)
            return Finding(
                "nonfinite-loss",
                "critical" if now else "warning",
                f"{name} is {row.last}: nothing is learnt from here on" if now else f"{name} was not finite at times",
                [f"{row.nonfinite:,} of {row.count:,} values were nan or infinite"],
                "Stop and go back to the last good checkpoint. Usual causes: a learning rate that is too high, fp16"
                " without loss scaling, log(0) or a division by 0, an empty batch.",
                1.0 if now else None,
            )
    return None


def reward_flat(evidence: Evidence) -> Finding | None:
    for name, row in evidence.report.metrics.items():
        if _REWARD.search(name) and not _SCALE.search(name) and _constant(row, ENOUGH_REWARDS):
            return Finding(
                "reward-flat",
                "warning",
                f"{name} has been exactly {row.last} in all {row.count:,} steps: nothing can be learnt from it",
                ["a policy gradient is made of differences between rewards; there are none"],
                "Check the reward function with an answer that is known to be good and one that is known to be bad;"
                " an executor that fails and is caught gives a constant, too.",
            )
    return None


def loss_flat(evidence: Evidence) -> Finding | None:
    metrics = evidence.report.metrics
    if any(_REWARD.search(name) for name in metrics):
        return None  # the loss of a policy gradient says nothing by its size
    for name, row in metrics.items():
        if _LOSS.search(name) and not _SCALE.search(name) and _constant(row, ENOUGH_LOSSES):
            if evidence.report.run.source == "console" and _digits(row.last) < ENOUGH_DIGITS:
                continue  # printed to two places, a loss that learns slowly looks so
            return Finding(
                "loss-flat",
                "warning",
                f"{name} has been exactly {row.last} in all {row.count:,} steps: the model does not change",
                [f"least {row.min}, greatest {row.max}"],
                "Look whether the optimizer holds the model's parameters, they require gradients, the learning rate"
                " is not 0, and the loss hangs on the model's output.",
            )
    return None


def _constant(row: MetricRow, enough: int) -> bool:
    if row.count < enough or row.nonfinite or row.min is None or row.max is None:
        return False
    return row.max - row.min <= SAME * max(abs(row.min), abs(row.max))


def _digits(value: float | str | None) -> int:
    """Significant digits that a value was printed with, as far as they show: zeros at its end do not."""
    return len(repr(value).partition("e")[0].replace(".", "").strip("-0")) if isinstance(value, float | int) else 0
