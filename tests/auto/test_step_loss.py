"""The loss of a step is the one that the program would print, however it accumulates or scales."""

from __future__ import annotations

from pathlib import Path

import pytest

from .watched import both, long, phases


@pytest.mark.parametrize("way", ["divided", *map(long, ("scaler", "accelerate", "multiplied", "plain"))])
@pytest.mark.long
def test_loss(way: str, tmp_path: Path) -> None:
    run = both(tmp_path, "losses.py", way)
    printed = [float(word) for word in run.out.split()]
    found = [step["metrics"]["loss"] for step in run.steps()]
    assert found == pytest.approx(printed, rel=1e-4)


@pytest.mark.long
def test_several_losses_of_one_batch_are_not_averaged(tmp_path: Path) -> None:
    run = both(tmp_path, "losses.py", "two")
    assert not any("loss" in step.get("metrics", {}) for step in run.steps())


@pytest.mark.long
def test_forward_ends_where_the_model_returns(tmp_path: Path) -> None:
    """On the fast path and off it: the sleep behind it is in no phase. A sleep is never shorter than asked for."""
    steps = both(tmp_path, "late_loss.py").steps()
    assert len(steps) == 12
    for step in steps:
        assert step["duration"] - sum(phases(step).values()) >= 0.05
        assert "forward" in phases(step)
