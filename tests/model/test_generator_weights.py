"""A copy of the trained model that generates: it gets the trained weights, or does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainhooks.protocol.events import Facts

from .conftest import Story, judged
from .test_rules import jitter


def generating(updated: Any, unchanged: Any, **metrics: float) -> Story:
    told = Story().tell(Facts, facts={"generator_weights": {"updated": updated, "unchanged": unchanged}})
    for i in range(60):
        logs = {name: value + 0.01 * (i % 7) for name, value in metrics.items()}
        told.step_with({"metrics": logs}, forward=jitter(0.1), backward=jitter(0.2))
    return told


SICK: dict[str, Callable[[], Story]] = {"weights-not-synced": lambda: generating(40, 40, reward=0.3)}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "weights-not-synced": [
        lambda: generating(40, 39, reward=0.3),  # once is enough to know that it is done
        lambda: generating(4, 4, reward=0.3),
        lambda: generating(40, 40, loss=2.0),  # a teacher
        lambda: generating("40", None, reward=0.3),
    ]
}


def test_a_few_calls_are_information() -> None:
    (finding,) = [each for each in judged(generating(10, 10, reward=0.3))[0] if each.code == "weights-not-synced"]
    assert finding.severity == "info"
