"""Nothing of the training lives longer than without trainmon: no tensor of a step, and no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.auto.watched import LIMIT, ROOT, SCRIPTS, environment, watched


@pytest.mark.long
def test_a_function_that_trains_can_let_go_of_its_model_and_its_first_step(tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "weighed.py"))
    assert "left: 0\n" in seen.out, seen.err


@pytest.mark.long
@pytest.mark.parametrize(
    "script", [("plain_loop.py",), ("accelerate_loop.py",), ("lightning_fit.py", "lightning"), ("trl_grpo.py",)]
)
def test_at_the_last_step_the_same_tensors_live_as_without(tmp_path: Path, script: tuple[str, ...]) -> None:
    command = [str(SCRIPTS / "weighed.py"), str(SCRIPTS / script[0]), *script[1:]]
    bare = subprocess.run(
        [sys.executable, *command], env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
    )
    alive = [line for line in bare.stdout.splitlines() if line.startswith("alive:")]
    assert alive, bare.stderr
    # What is kept is kept in every run; a sample of the stack holds a frame for some microseconds of one.
    assert alive in (
        [line for line in watched(tmp_path / name, *command).out.splitlines() if line.startswith("alive:")]
        for name in ("first", "second", "third")
    )
