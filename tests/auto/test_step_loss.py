"""The loss of a step is the one that the program would print, however it accumulates or scales."""

from __future__ import annotations

from pathlib import Path

import pytest

from .watched import both


@pytest.mark.parametrize("way", ["divided", "multiplied", "plain", "scaler"])
def test_loss(way: str, tmp_path: Path) -> None:
    run = both(tmp_path, "losses.py", way)
    printed = [float(word) for word in run.out.split()]
    found = [step["metrics"]["loss"] for step in run.steps()]
    assert found == pytest.approx(printed, rel=1e-4)


def test_several_losses_of_one_batch_are_not_averaged(tmp_path: Path) -> None:
    run = both(tmp_path, "losses.py", "two")
    assert not any("loss" in step.get("metrics", {}) for step in run.steps())
