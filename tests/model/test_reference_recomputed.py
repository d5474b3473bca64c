"""A copy of the trained model that computes the same again, and copies that do not."""

from __future__ import annotations

from collections.abc import Callable

from trainhooks.protocol.events import Facts

from .conftest import Story, judged
from .test_rules import jitter

CODE = "reference-recomputed"


def updating(calls: object = 64, repeated: int = 48, mixed: int = 0, rounds: int = 6, seconds: float = 3.0) -> Story:
    table = {"calls": calls, "repeated": repeated, "mixed": mixed, "rounds": rounds}
    times = {"repeated_seconds": seconds, "watched_seconds": 10.0}
    told = Story().tell(Facts, facts={"model_copy": {**table, **times}})
    for _ in range(60):
        told.step(forward=jitter(0.1), backward=jitter(0.2))
    return told


SICK: dict[str, Callable[[], Story]] = {CODE: updating}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    CODE: [
        lambda: updating(calls=6, repeated=5),
        lambda: updating(repeated=12),  # now and then
        lambda: updating(mixed=16),  # a replay buffer
        lambda: updating(rounds=0),  # epochs over a fixed data set
        lambda: updating(seconds=0.2),  # it costs next to nothing
        lambda: updating(calls="64"),
    ]
}


def test_a_small_share_is_information() -> None:
    (finding,) = [found for found in judged(updating(seconds=0.7))[0] if found.code == CODE]
    assert finding.severity == "info"
