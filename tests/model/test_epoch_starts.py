"""The first batch of each pass: what it costs, and passes that begin like any other step."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Facts

from .conftest import Story, judged
from .test_rules import jitter


def passing(
    passes: int,
    steps: int,
    first: float,
    data: float = 0.002,
    fact: str = "passes",
    once: float | None = None,
    **loader: Any,
) -> list[Finding]:
    told = Story().tell(Facts, facts={"loader": {"dataloader_num_workers": 2, **loader}})
    for number in range(1, passes + 1):
        for step in range(steps):
            waits = data
            if step == 0:
                told.tell(Facts, facts={fact: {"number": number, "batches": steps}})
                waits = once if once and number == 3 else first
            told.step(data=jitter(waits), forward=jitter(0.02), backward=jitter(0.04))
    return judged(told, alive=False)[0]


SICK = {
    "epoch-start": lambda: passing(8, 20, 1.0, dataloader_persistent_workers=False),
}
INNOCENT = {
    "epoch-start": [
        lambda: passing(8, 20, 0.002),  # it keeps its workers
        lambda: passing(8, 400, 0.4),  # long epochs
        lambda: passing(8, 20, 0.3, data=0.25),  # all batches are late
        lambda: passing(8, 20, 0.002, once=6.0),  # one cold shard
        lambda: passing(3, 20, 1.0),  # too few
    ],
}
NOT_IN_ZOO = {"epoch-start": "how long workers take to start is the machine's"}


@pytest.mark.parametrize("fact", ["passes", "loader_passes"])
def test_the_wait_is_named_once(fact: str) -> None:
    found = passing(8, 20, 1.0, fact=fact, dataloader_persistent_workers=False)
    assert [each.code for each in found if each.severity != "info"] == ["epoch-start"]
    assert not [each.code for each in found if each.code in ("input-bound", "slow-steps")]
    assert "anew" in found[0].title and found[0].lost_fraction is not None
    assert found[0].lost_fraction == pytest.approx(7 / (8 * 20 * 0.06 + 8), rel=0.25)
