"""The fast path records the same of a program as the step tracker, and the program's model stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .watched import LIMIT, ROOT, SCRIPTS, both, environment, long


def recorded(state: Path, *words: str) -> tuple[str, int]:
    """Return what is recorded of `anything.py`, and how many of its steps were recorded on the fast path."""
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


KINDS = ("loader", "plain", "tokens", "alone", "accumulating", "scaled", "two")


@pytest.mark.long
@pytest.mark.parametrize("late", [(), ("late",)], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", ["1", long("2")])
def test_both_paths_record_the_same(tmp_path: Path, kind: str, seed: str, late: tuple[str, ...]) -> None:
    fast, on_path = recorded(tmp_path, "fast", seed, kind, *late)
    slow, none = recorded(tmp_path, "never", seed, kind, *late)
    assert fast == slow
    assert (on_path > (15 if kind == "accumulating" else 50), none) == (True, 0)


@pytest.mark.long
def test_a_model_keeps_its_own_call(tmp_path: Path) -> None:
    assert len(both(tmp_path, "own_model.py").steps()) == 8


@pytest.mark.long
def test_an_open_step_shows_in_pulses(tmp_path: Path) -> None:
    run = both(tmp_path, "stalls.py")
    assert len(run.steps()) == 12
    seen = [pulse for pulse in run.events("pulse") if pulse.get("step") == 10]
    assert {pulse["phase"] for pulse in seen} == {"backward"}
    assert seen[-1]["step_open"] >= seen[-1]["phase_open"] > seen[0]["phase_open"]
    assert any(where == "backward" for event in run.events("frames") for where, _, _ in event["rows"])
