"""Usual steps are taken down at a smaller price: what is told of a program is the same, and its model stays its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .watched import LIMIT, ROOT, SCRIPTS, both, environment


def told(state: Path, *words: str) -> tuple[str, int]:
    """What is told of the program `anything.py`, and how many steps of it were told at once."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / "anything.py"), *words],
        env=environment(state),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return ended.stdout, int(ended.stderr.split()[-1])


@pytest.mark.parametrize("kind", ["loader", "plain", "tokens", "late"])
@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_the_same_is_told(tmp_path: Path, kind: str, seed: str) -> None:
    usual, at_once = told(tmp_path, "usual", seed, kind)
    spelt_out, none = told(tmp_path, "never", seed, kind)
    assert usual == spelt_out
    assert (at_once > 50, none) == (True, 0)


def test_a_model_stays_its_owners(tmp_path: Path) -> None:
    assert len(both(tmp_path, "own_model.py").steps()) == 8


def test_a_step_under_way_is_seen(tmp_path: Path) -> None:
    run = both(tmp_path, "stalls.py")
    assert len(run.steps()) == 12
    seen = [pulse for pulse in run.events("pulse") if pulse.get("step") == 10]
    assert {pulse["phase"] for pulse in seen} == {"backward"}
    assert seen[-1]["step_open"] >= seen[-1]["phase_open"] > seen[0]["phase_open"]
    assert any(where == "backward" for event in run.events("frames") for where, _, _ in event["rows"])
