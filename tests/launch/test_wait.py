"""`trainmon wait` blocks until something is true of a run: a line for people, a line of JSON, an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.signals import send_group_signal, send_signal

from .conftest import ROOT, TRAINMON, State, python, wait_for

# Each step from the tenth on waits for a file of its number.
TRAINING = """
import os, sys, time
import trainhooks as th
th.init(total_steps=40)
for index in th.steps(range(40)):
    th.log(loss=4 - index / 10)
    while index >= 10 and not os.path.exists({go!r}):
        time.sleep(0.01)
    if index == 30 and {fails}:
        raise ValueError("no more data")
"""


def training(go: Path, fails: bool = False) -> list[str]:
    return python(TRAINING.format(go=str(go), fails=fails))


def waiting(state: State, *words: str) -> subprocess.Popen[bytes]:
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*TRAINMON, "wait", *words], env=state.environment, cwd=ROOT, **pipes)


def told(done: subprocess.Popen[bytes] | subprocess.CompletedProcess[bytes], output: bytes | None = None) -> Any:
    """Return the line of JSON; the one before it, for people, says the same."""
    text, line = (output if output is not None else done.stdout).decode().splitlines()  # type: ignore[union-attr]
    answer = json.loads(line)
    assert answer["text"] == text and answer["schema_version"] == 1
    return answer


@pytest.mark.long
def test_it_blocks_until_what_is_asked_for_is_true(state: State) -> None:
    go = state.path / "go"
    front = state.start(*training(go), options=("--name", "held"))
    early = state.call("wait", "held", "--until", "step=5,end")
    assert early.returncode == 0 and [met["kind"] for met in told(early)["met"]] == ["step"]
    waits = [waiting(state, "held", "--until", what) for what in ("metric:loss<1.5", "end", "loss.below=0")]
    assert state.call("wait", "held", "--until", "end", "--timeout", "0").returncode == 3
    go.touch()
    outputs = [each.communicate(timeout=60)[0] for each in waits]
    front.communicate(timeout=60)
    assert [each.returncode for each in waits] == [0, 0, 4]
    by_metric, by_end, never = [told(each, output) for each, output in zip(waits, outputs, strict=True)]
    assert by_metric["met"][0]["value"] < 1.5
    assert (by_end["state"], by_end["exit_code"], by_end["steps_done"]) == ("finished", 0, 40)
    assert (never["result"], never["met"], never["waited_for"]) == ("ended", [], ["loss.below=0"])


def test_a_timeout_is_told_apart(state: State) -> None:
    front = state.start(*training(state.path / "never"), options=("--name", "held"))
    done = state.call("wait", "held", "--until", "end,absent.below=1,step=4000", "--timeout", "1s")
    answer = told(done)
    assert (done.returncode, answer["result"], answer["state"]) == (3, "timeout", "running")
    assert answer["unknown_metrics"] == ["absent"] and "no metric absent was logged" in answer["text"]
    send_signal(front.pid, signal.SIGTERM)
    front.communicate(timeout=60)


def test_a_crash_is_critical_and_the_end(state: State) -> None:
    go = state.path / "go"
    go.parent.mkdir(exist_ok=True)
    go.touch()
    state.run(*training(go, fails=True), options=("--name", "sick"))
    done = state.call("wait", "sick", "--until", "critical")
    (met,) = told(done)["met"]
    assert done.returncode == 0 and met["finding"]["code"] == "crashed" and "no more data" in str(met["finding"])
    before = state.call("wait", "sick", "--until", "step=40")
    assert (before.returncode, told(before)["state"], told(before)["exit_code"]) == (4, "failed", 1)


@pytest.mark.long
def test_a_run_whose_end_nobody_saw_is_over(state: State) -> None:
    front = state.start(*training(state.path / "never"), options=("--name", "held"))
    run = state.only
    waits = [waiting(state, "held", "--until", what) for what in ("end", "step=4000")]
    state.strike(run, signal.SIGKILL)
    send_group_signal(state.pid(run), signal.SIGKILL)
    front.kill()
    answers = [told(each, each.communicate(timeout=60)[0]) for each in waits]
    front.communicate(timeout=60)
    assert [each.returncode for each in waits] == [0, 4]
    assert answers[0]["state"] in ("lost", "killed") and answers[1]["result"] == "ended"


def test_a_run_that_is_about_to_begin_is_waited_for(state: State) -> None:
    waits = waiting(state, "later", "--until", "end")
    wait_for(lambda: waits.poll() is None)
    state.run("true", options=("--name", "later"))
    output, errors = waits.communicate(timeout=60)
    assert waits.returncode == 0, errors
    assert told(waits, output)["state"] == "finished"


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("last",),
        ("last", "--until", ""),
        ("last", "--until", "sometime"),
        ("last", "--until", "step=many"),
        ("last", "--until", "end", "--timeout", "soon"),
        ("nobody", "--until", "end"),
        ("last#2", "--until", "end"),
    ],
)
def test_a_mistake_is_one_line(state: State, words: tuple[str, ...]) -> None:
    state.run("true")
    done = state.call("wait", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().count("\n") == 1
