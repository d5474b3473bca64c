"""`trainmon stack`: where the threads of real processes are, that answer, that cannot, and that were stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainhooks
from tests.launch.conftest import State, wait_for

STEPS = """
import ctypes, threading, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def reward_of(answer):
    time.sleep(1000)
def holds():
    ctypes.PyDLL(None).sleep(1000)  # without letting go of the interpreter
def waits(event):
    event.wait()
threading.Thread(target=waits, args=(threading.Event(),), name="grader", daemon=True).start()
for step in range(8):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step(); time.sleep(0.02)
print("THERE", flush=True)
"""


@pytest.fixture
def hangs(state: State, tmp_path: Path) -> Iterator[Any]:
    started = []

    def start(last: str) -> str:
        (tmp_path / "train.py").write_text(STEPS + last)
        front = state.start(sys.executable, "-u", str(tmp_path / "train.py"))
        started.append(front)
        assert front.stdout is not None and b"THERE" in front.stdout.readline()
        run = state.only
        wait_for(lambda: list(run.glob("control-*.sock")))
        return run.name

    yield start
    for front in started:
        front.kill()
        front.communicate()


def asked(state: State, run: str) -> dict[str, Any]:
    done = state.call("stack", run, "--json")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.long
def test_a_rank_says_its_line_and_its_threads(state: State, hangs: Any) -> None:
    run = hangs("reward_of(1)")
    wait_for(lambda: "reward_of" in asked(state, run)["places"][0]["place"])
    told = asked(state, run)
    (place,), (process,) = told["places"], told["processes"]
    assert place["ranks"] == [0] and "in reward_of" in place["place"]
    assert process["how"] == "hooks" and "sleeping" in process["state"]
    threads = {thread["name"]: thread for thread in process["threads"]}
    assert threads["MainThread"]["main"] and "in waits" in threads["grader"]["place"]
    assert all("trainhooks/" not in frame["file"] for thread in process["threads"] for frame in thread["frames"])
    words = state.call("stack", run).stdout.decode()
    assert "rank 0" in words and "in reward_of" in words and "thread grader" in words


@pytest.mark.long
def test_one_that_holds_the_interpreter_is_looked_at_from_outside(state: State, hangs: Any) -> None:
    run = hangs("time.sleep(1); holds()")
    wait_for(lambda: asked(state, run)["processes"][0]["how"] != "hooks")
    (process,) = asked(state, run)["processes"]
    assert "something holds the interpreter" in process["note"] and "sleeping" in process["state"]
    if shutil.which("py-spy") and process["how"] == "py-spy":
        assert "in holds" in process["place"]


@pytest.mark.long
def test_py_spy_is_asked_without_stopping_or_reading_values(state: State, hangs: Any, tmp_path: Path) -> None:
    run = hangs("time.sleep(1); holds()")
    wait_for(lambda: asked(state, run)["processes"][0]["how"] != "hooks")
    pid = asked(state, run)["processes"][0]["pid"]
    own = {"filename": trainhooks.__file__, "line": 1, "name": "wrapper"}  # no line of the program
    frames = [own, {"filename": "/x/train.py", "line": 9, "name": "holds"}, own]
    answer = json.dumps([{"thread_name": "MainThread \x1b[2J", "os_thread_id": pid, "frames": frames}])
    (tmp_path / "bin").mkdir()
    (tmp_path / "answer").write_text(answer)
    program = tmp_path / "bin" / "py-spy"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\ncat {tmp_path}/answer\n')
    program.chmod(0o755)
    state.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    (process,) = asked(state, run)["processes"]
    assert process["how"] == "py-spy" and process["place"] == "x/train.py:9 in holds"
    assert len(process["threads"][0]["frames"]) == 1
    assert "\x1b" not in process["threads"][0]["name"]
    assert (tmp_path / "words").read_text().splitlines() == [f"dump --nonblocking --json --pid {pid}"]
    (tmp_path / "answer").write_text("[{")
    (process,) = asked(state, run)["processes"]
    assert process["how"] == "kernel" and "py-spy: an answer of another form" in process["note"]


def test_one_that_was_stopped_is_told_as_stopped(state: State, hangs: Any) -> None:
    run = hangs("reward_of(1)")
    pid = asked(state, run)["processes"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (process,) = asked(state, run)["processes"]
        assert process["how"] != "hooks" and process["state"] == "stopped"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_before_the_hooks_report_the_command_is_looked_at(state: State) -> None:
    front = state.start("sh", "-c", "echo there; sleep 1000")
    try:
        (run,) = state.runs()
        told = asked(state, run.name)
        assert {"sh", "sleep"} & {process["name"] for process in told["processes"]}
        assert all(process["rank"] is None and process["state"] for process in told["processes"])
    finally:
        front.kill()
        front.communicate()


def test_a_run_that_is_over_has_no_stacks(state: State) -> None:
    assert state.run("true").returncode == 0
    done = state.call("stack")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"not running" in done.stderr
