"""Nothing of the training lives longer than without trainmon: no tensor of a step, and no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.auto.watched import LIMIT, ROOT, SCRIPTS, environment, watched


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
    seen = watched(tmp_path, *command)
    alive = [line for line in bare.stdout.splitlines() if line.startswith("alive:")]
    assert alive, bare.stderr
    assert [line for line in seen.out.splitlines() if line.startswith("alive:")] == alive
