"""A training that trainmon did not start: how it ended is unknown where nobody saw it, and never a success."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import State, python

STEPS = "import trainhooks as th\nfor _ in th.steps(range(12)):\n    th.log(loss=1.0)\n"


@pytest.fixture
def train(state: State) -> subprocess.CompletedProcess[bytes]:
    program = python(f"{STEPS}import sys\nsys.exit(3)")
    return subprocess.run(program, env=state.environment, capture_output=True, timeout=60)


@pytest.mark.long
def test_an_exit_code_that_nobody_saw_is_unknown(state: State, train: subprocess.CompletedProcess[bytes]) -> None:
    assert train.returncode == 3
    run = state.only.name
    outcome = json.loads(state.call("report", run, "--json").stdout)["outcome"]
    assert (outcome["state"], outcome["exit_code"], outcome["signal"]) == ("finished", None, None)
    for words in (("report", run, "--full"), ("report", run, "--markdown"), ("attach", run, "--once")):
        rows = state.call(*words).stdout.decode().splitlines()
        line = next(row for row in rows if "exit code" in row or "finished" in row)
        assert "exit code unknown" in line, words
        assert not any(word in line.lower() for word in (" ok", "success", "code 0", "✔")), words
    assert "finished (code unknown)" in state.call("ls").stdout.decode()
    (entry,) = json.loads(state.call("ls", "--json").stdout)
    assert (entry["state"], entry["exit_code"]) == ("finished", None)


def test_one_that_was_seen_is_told(state: State, tmp_path: Path) -> None:
    assert state.run(*python("raise SystemExit(0)")).returncode == 0
    listed = state.call("ls").stdout.decode()
    assert "finished" in listed and "unknown" not in listed


def test_an_error_that_the_program_died_of_is_told_without_its_code(state: State) -> None:
    subprocess.run(python(f"{STEPS}1 / 0"), env=state.environment, capture_output=True, timeout=60)
    outcome = json.loads(state.call("report", state.only.name, "--json").stdout)["outcome"]
    assert (outcome["state"], outcome["exit_code"]) == ("failed", None)
    assert "ZeroDivisionError" in outcome["error"]
