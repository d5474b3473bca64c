"""A training that waits for its own workers, and those that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainhooks.protocol.events import Frames

from .conftest import Story, assert_first_and_alone, judged
from .test_rules import jitter

QUEUE = ("rl.py:41 (samples.get) in learn", "queue")
POOL = ("rl.py:50 (list) in score", "worker pool")


def waiting(part: float, *looks: tuple[str, str], where: str = "other", n: int = 60) -> Story:
    """Steps of a second with this share in no phase, and forty stack samples there."""
    told = Story()
    for _ in range(n):
        told.step(forward=jitter((1 - part) / 3), backward=jitter(2 * (1 - part) / 3), other=jitter(part))
    rows = [(where, line, 40 // len(looks)) for line, _ in looks]
    return told.tell(Frames, rows=rows, activities=[activity for _, activity in looks], begin=100.0)


SICK: dict[str, Callable[[], Story]] = {"worker-wait": lambda: waiting(0.6, QUEUE)}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "worker-wait": [
        lambda: waiting(0.1, QUEUE),
        lambda: waiting(0.6, ("rl.py:60 (ast.parse) in score", "")),
        lambda: waiting(0.6, ("rl.py:61 (json.dumps) in log", "JSON"), ("rl.py:62 (sort) in auc", "")),
        lambda: waiting(0.6, QUEUE, n=3),
    ]
}


@pytest.mark.parametrize("look", [QUEUE, ("rl.py:9 (pipe.recv) in main", "wait for a process")])
def test_a_wait_for_workers_comes_first_and_alone(look: tuple[str, str]) -> None:
    assert_first_and_alone(waiting(0.6, look), "worker-wait")


def test_a_pool_is_information_as_it_may_be_all_there_is_to_do() -> None:
    found = judged(waiting(0.6, POOL), alive=False)[0]
    assert [(finding.code, finding.severity) for finding in found] == [("worker-wait", "info")]


def test_a_shorter_wait_is_information() -> None:
    (finding,) = [each for each in judged(waiting(0.3, QUEUE))[0] if each.code == "worker-wait"]
    assert finding.severity == "info" and finding.lost_fraction == pytest.approx(0.3, rel=0.15)
