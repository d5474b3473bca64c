"""A copy that a program learns from, as a target network is: it gets the trained weights, or does not."""

from __future__ import annotations

from collections.abc import Callable

from trainhooks.protocol.events import Facts

from .conftest import Story, judged
from .test_rules import jitter


def learning(unchanged: int, alike: int = 0, updates: int = 1200, acts: bool = True) -> Story:
    told = Story().tell(Facts, facts={"target_network": {"unchanged": unchanged, "alike": alike}})
    for _ in range(updates):
        metrics = {"env_steps": 4.0, "env_seconds": 0.001} if acts else {}
        told.step_with({"metrics": metrics}, forward=jitter(0.1), backward=jitter(0.2))
    return told


SICK: dict[str, Callable[[], Story]] = {"target-not-updated": lambda: learning(64, 10).bye()}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "target-not-updated": [
        lambda: learning(0).bye(),  # it was updated once
        lambda: learning(64, updates=600).bye(),  # a trial, shorter than usual intervals
        lambda: learning(64, acts=False).bye(),  # a frozen teacher
        lambda: learning(8, 60).bye(),  # a reference, which is given what the policy learns on
    ]
}
NOT_IN_ZOO = {"target-not-updated": "tests/auto/test_target_networks.py runs the programs"}


def test_a_run_that_goes_on_may_have_a_long_interval() -> None:
    codes = [finding.code for finding in judged(learning(64), alive=True)[0]]
    assert "target-not-updated" not in codes
