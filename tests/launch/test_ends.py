"""How a command ends while something of it lives on, and one that a time limit stops."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.signals import send_signal
from trainhooks.protocol import rundir

from .conftest import State, python, wait_for

# Steps by the hooks' own call: no torch to import.
TRAINS = """
import sys, time
import trainhooks as th
for number in th.steps(range({steps})):
    with th.phase("{phase}" if number % 50 == 0 else "training"):
        time.sleep({rollout} if number % 50 == 0 and number else 0.01)
print("trained", flush=True)
time.sleep({lives})
"""
STARTS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE, text=True, start_new_session=True)
{waits}
sys.exit({code})
"""
WAITS = "child.stdout.readline()"


def child(steps: int, lives: float, phase: str = "training", rollout: float = 0.01) -> str:
    return TRAINS.format(steps=steps, lives=lives, phase=phase, rollout=rollout)


def end_left(run: Path) -> None:
    for lock in rundir.rank_locks(run):
        send_signal((rundir.read_json(lock) or {})["pid"], signal.SIGKILL)


def reported(state: State, run: Path) -> dict[str, Any]:
    return dict(json.loads(state.call("report", run.name, "--json").stdout))


@pytest.mark.long
@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_before_its_child(state: State, code: int) -> None:
    done = state.run(*python(STARTS.format(child=child(40, 60.0), waits=WAITS, code=code)))
    assert done.returncode == code
    assert reported(state, state.only)["outcome"]["exit_code"] == code  # at once
    wait_for(lambda: reported(state, state.only)["outcome"]["state"] != "running")
    outcome = reported(state, state.only)["outcome"]
    end_left(state.only)
    assert outcome["state"] == ("failed" if code else "finished")
    assert "lives on" in outcome["left"]
    assert outcome["left"].split()[1].isdigit()  # whose it is


@pytest.mark.long
def test_a_training_that_still_steps_keeps_the_run_going(state: State) -> None:
    """The twin: a launcher that starts it and leaves."""
    state.run(*python(STARTS.format(child=child(100_000, 0.0), waits="time.sleep(5)", code=0)))
    try:
        for _ in range(3):
            outcome = reported(state, state.only)["outcome"]
            assert (outcome["state"], outcome["exit_code"], outcome["left"]) == ("running", 0, None)
            time.sleep(2.5)
    finally:
        end_left(state.only)


@pytest.mark.long
def test_a_time_limit_is_no_crash(state: State) -> None:
    """Neither is the long rollout in which it stops it a stall."""
    rollouts = child(100_000, 0.0, "rollout", 20.0)
    done = state.run("timeout", "55", *python(rollouts), timeout=120)
    assert done.returncode == 124
    found = reported(state, state.only)
    assert found["outcome"]["state"] == "killed"
    assert found["outcome"]["exit_code"] == 124
    assert "time limit" in found["outcome"]["error"]
    assert not {"crashed", "stalled"} & {finding["code"] for finding in found["findings"]}
