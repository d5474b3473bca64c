"""A loss that grows instead of falling, long before it is NaN. Pure."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.learning_signals import MAIN_LOSS
from monitor.model.report import Finding
from monitor.model.steps.series import Column
from trainhooks.protocol.vocabulary import REWARD_NAME

RUN_PARTS = 10  # of the run, each with its median: one bad batch or a warm restart moves none of them
MIN_LOSS_VALUES = 30  # three a part
MANY_VALUES = 200  # twenty a part: with fewer, noise is larger, and the growth has to be
# Against the first part: a loss above that of the untrained model twice over says that it is confidently wrong.
MIN_ABOVE_START = 2.0
MIN_ABOVE_LEAST = 3.0  # against the best part
FEW_VALUES_FACTOR = 2.0  # on both, with few values
GROWING_PARTS = 5  # at the end, none clearly below the one before: a jump (a harder task, a restart) falls again
MAX_FALL = 0.05  # of a part's median below the one before, for noise
MIN_LOSS_GROWTH = 1.5  # over these parts
MAX_LONGER = 1.5  # tokens of a step against the start: of longer sequences a loss that is summed up grows by itself


@rule("loss-diverging", Family.LEARNING, priority=1)
def loss_diverging(evidence: Evidence) -> Finding | None:
    """Find a training loss that keeps growing beyond where it began."""
    metrics, updates = evidence.state.metrics, evidence.facts.updates
    if any(REWARD_NAME.search(name) for name in metrics) or updates.rollouts or updates.optimizers:
        return None  # a policy's loss, a value's and two networks against each other say nothing by their size
    if _grows_longer(evidence.state.main.tokens.settled()):
        return None
    for name, column in metrics.items():
        count = column.settled().count
        if not MAIN_LOSS.fullmatch(name) or count < MIN_LOSS_VALUES or column.least <= 0.0:
            continue
        medians = _medians(column)
        if medians is None or not _diverges(medians, 1.0 if count >= MANY_VALUES else FEW_VALUES_FACTOR):
            continue
        least = min(medians)
        return Finding(
            code="loss-diverging",
            severity="warning",
            title=f"Diverging: {name} is {medians[-1]:.3g}, {medians[-1] / medians[0]:.1f}x that of the start",
            evidence=[
                f"median {medians[0]:.3g} in the first {RUN_PARTS}th of the run, {least:.3g} in the best,"
                f" {medians[-1]:.3g} in the last",
                f"growing over the last {GROWING_PARTS} of {RUN_PARTS} parts",
            ],
            advice="Stop it, go back to the best checkpoint, and lower the learning rate; clip gradients, warm up, and"
            " check the last change of data or schedule.",
        )
    return None


def _medians(column: Column) -> list[float] | None:
    """Return the median of each part of the run; None where a part has no values."""
    curve = column.curve()
    if not curve.x or curve.end is None:
        return None
    first, width = curve.x[0], (curve.end - curve.x[0] + 1) / RUN_PARTS
    parts: list[list[float]] = [[] for _ in range(RUN_PARTS)]
    for x, mean in zip(curve.x, curve.mean, strict=True):
        if math.isfinite(mean):
            parts[min(RUN_PARTS - 1, int((x - first) / width))].append(mean)
    return [median(part) for part in parts] if all(parts) else None


def _diverges(medians: list[float], factor: float) -> bool:
    last, ending = medians[-1], medians[-GROWING_PARTS:]
    if last < factor * MIN_ABOVE_START * medians[0] or last < factor * MIN_ABOVE_LEAST * min(medians):
        return False
    steady = all(after >= (1.0 - MAX_FALL) * before for before, after in pairwise(ending))
    return steady and last >= MIN_LOSS_GROWTH * ending[0]


def _grows_longer(tokens: Column) -> bool:
    medians = _medians(tokens)
    return medians is not None and medians[0] > 0 and medians[-1] > MAX_LONGER * medians[0]
