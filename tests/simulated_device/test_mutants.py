"""A lane that is wrong is found out: each mutant fails a check that the lane as it is passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_device import checks
from tests.simulated_device.mutants import MUTANTS
from tests.simulated_device.plays import TRACING, Played, Plays


def _costs(played: Played) -> list[str]:
    share = checks.cost(played)
    return [f"costs {share:.3f} of the step time"] if share > checks.BUDGET else []


# What each is played on, and how it is found out; the same play of the lane itself must pass.
FOUND = {
    "host clock as device time": ("reads-each-20th", checks.complaints, "in truth"),
    "interval as busy": ("launch-bound", checks.complaints, "at least"),
    "the wrong event": ("healthy", checks.complaints, "in truth"),
    "a fixed k": ("ten-milliseconds", checks.spread, "varies by no more than"),
    "every step": ("ten-milliseconds", _costs, "of the step time"),
    "waits for the device": ("healthy", checks.complaints, "misdeed: synchronize"),
    "asks from another thread": ("reads-each-20th", checks.complaints, "another thread"),
}


# Of traces: each is played on a host that is ahead of its device by several steps.
TRACED = {"kernels by when they ran": "in truth", "a whole session as its steps": "in truth"}


@pytest.mark.long
@pytest.mark.parametrize("mutant", FOUND)
def test_it_is_found_out(play: Plays, mutant: str) -> None:
    name, check, why = FOUND[mutant]
    assert check(play(name)) == []
    found = check(play(name, mutant=mutant))
    assert any(why in each for each in found), found


@pytest.mark.parametrize("mutant", TRACED)
def test_it_is_found_out_by_its_traces(play: Plays, mutant: str) -> None:
    traced: dict[str, Any] = {"changes": {"steps": 120}, "environment": TRACING}
    assert checks.traces(play("reads-each-20th", **traced)) == []
    assert any(TRACED[mutant] in each for each in checks.traces(play("reads-each-20th", mutant=mutant, **traced)))


def test_each_mutant_is_tried() -> None:
    """The last one breaks a capture: `test_safety` plays it."""
    assert set(MUTANTS) == {*FOUND, *TRACED, "blind to captures"}
