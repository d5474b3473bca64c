"""Iterations of real programs, live and after their end, held against what the programs measure themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import State, python

PPO = """
import time
import trainhooks as th
spent = {{"rollout": 0.0, "all": 0.0}}
steps = iter(th.steps(range(6 * {updates})))
for iteration in range(6):
    t0 = time.perf_counter()
    for update in range({updates}):
        next(steps)
        if update == 0:
            with th.phase("rollout"):
                time.sleep(0.4)
            spent["rollout"] += time.perf_counter() - t0
        with th.phase("training"):
            time.sleep({learning} / {updates})
    spent["all"] += time.perf_counter() - t0
next(steps, None)
print("TRUTH", spent["rollout"] / spent["all"])
"""
# Answers from a cache in two of three iterations; what lies between the steps is a program that judges them.
CACHED = """
import time
import trainhooks as th
for iteration in range(18):
    if iteration % 3 == 0:
        with th.span("generation"):
            time.sleep(0.2)
    with th.span("execution"):
        time.sleep(0.1)
    for _ in th.steps(range(4)):
        with th.phase("training"):
            time.sleep(0.01)
"""
SUPERVISED = """
import time
import trainhooks as th
for number in th.steps(range(120)):
    with th.phase("data"):
        time.sleep(0.002)
    with th.phase("training"):
        time.sleep(0.01)
"""


def reported(state: State, source: str) -> tuple[dict[str, Any], str]:
    done = state.run(*python(source))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(state.call("report", state.only.name, "--json").stdout)), done.stdout.decode()


@pytest.mark.long
@pytest.mark.parametrize("updates", [4, 320])
def test_any_number_of_steps(state: State, updates: int) -> None:
    report, printed = reported(state, PPO.format(updates=updates, learning=0.4))
    cycle = report["cycle"]
    assert (cycle["count"], cycle["steps"]) == (6, updates)
    shares = {part["name"]: part["share"] for part in cycle["phases"]}
    assert shares["rollout"] == pytest.approx(float(printed.split("TRUTH")[1]), abs=0.03)
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.long
def test_two_kinds_of_iterations(state: State) -> None:
    cycle = reported(state, CACHED)[0]["cycle"]
    kinds = {kind["name"]: kind for kind in cycle["kinds"]}
    assert kinds["rollout, reward"]["share"] == pytest.approx(1 / 3)
    assert kinds["reward"]["share"] == pytest.approx(2 / 3)
    assert kinds["rollout, reward"]["typical_seconds"] > kinds["reward"]["typical_seconds"]


@pytest.mark.long
def test_supervised_training_has_no_iteration(state: State) -> None:
    """The twin."""
    assert reported(state, SUPERVISED)[0]["cycle"] is None
