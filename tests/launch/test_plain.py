"""Where no dashboard can be shown: lines of progress, JSON, replays; and what a shell completes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, TRAINMON, State, python

PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
RECORDING = str(ROOT / "demo" / "recordings" / "rl-code-cpu.jsonl")
TRAINING = """
import os, time
import trainhooks as th
th.init(name="pulsar", total_steps=40)
for index in th.steps(range(40)):
    with th.phase("generation"):
        time.sleep(0.01)
    th.log(loss=1 / (index + 1))
    while index == 20 and not os.path.exists({go!r}):
        time.sleep(0.01)
"""


def attached(state: State, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A run watched from its middle to its end."""
    go = state.path / "go"
    front = state.start(*python(TRAINING.format(go=str(go))))
    with subprocess.Popen([*TRAINMON, "attach", *words], env=state.environment, cwd=ROOT, **PIPES) as attach:
        first = attach.stdout.readline()
        go.touch()
        rest, errors = attach.communicate(timeout=60)
    front.communicate(timeout=60)
    return subprocess.CompletedProcess(attach.args, attach.returncode, first + rest, errors)


def test_attach_without_a_terminal_prints_a_line_now_and_then(state: State) -> None:
    watched = attached(state)
    assert watched.returncode == 0
    assert b"no terminal to draw on" in watched.stderr
    lines = watched.stdout.decode().splitlines()
    assert any(line.startswith("finished  40 of 40 steps (100%)") for line in lines)
    assert any(line.startswith("pulsar   finished (exit code 0)") for line in lines)  # the short report
    assert "\x1b" not in watched.stdout.decode()


@pytest.mark.long
def test_attach_json_streams_reports_and_ends_with_the_run(state: State) -> None:
    watched = attached(state, "--json")
    assert watched.returncode == 0
    told = [json.loads(line) for line in watched.stdout.splitlines()]
    assert len(told) >= 2
    assert told[0]["outcome"]["state"] == "running"
    assert told[-1]["outcome"]["state"] == "finished"
    assert told[-1]["progress"]["steps_done"] == 40
    assert set(told[-1]) == set(json.loads(state.call("report", "--json").stdout))
    one = state.call("attach", "last", "--once", "--json").stdout
    assert json.loads(one)["progress"]["steps_done"] == 40
    assert one.count(b"\n") == 1


def test_a_replay_without_a_terminal(state: State) -> None:
    played = state.call("replay", RECORDING, "--speed", "200")
    assert played.returncode == 0
    lines = played.stdout.decode().splitlines()
    assert len(lines) > 10
    assert re.match(r"\[REPLAY · 200x 0:\d\d/", lines[0])
    assert any(line.startswith("[REPLAY · ended ") and "150 of 150 steps" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["replay"], "no runs yet"),
        (["replay", RECORDING, "--speed", "0"], "--speed 10"),
        (["replay", RECORDING, "--speed", "-1"], "--speed"),
        (["replay", str(ROOT / "README.md")], "holds no events"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_mistakes_end_in_one_line(state: State, words: list[str], says: str) -> None:
    ended = state.call(*words)
    (line,) = ended.stderr.decode().splitlines()
    assert (ended.returncode, says in line, ended.stdout) == (2, True, b""), line


def test_an_unknown_key_of_the_configuration_is_reported_and_the_training_starts(state: State, tmp_path: Path) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text("[screen]\nthem = 'paper'\n")
    ended = state.run("touch", str(tmp_path / "started"))
    assert ended.returncode == 0
    assert b"did you mean theme?" in ended.stderr
    assert (tmp_path / "started").exists()


def test_price_and_expectation_come_from_the_configuration(state: State) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text("[run]\nprice = 3\nexpect_tps = 500\n")
    assert state.run("true").returncode == 0
    known = json.loads((state.only / "run.json").read_text())
    assert (known["price"], known["expect_tps"]) == (3.0, 500.0)


def test_without_a_terminal_no_verb_means_the_help(state: State) -> None:
    ended = state.call()
    assert ended.returncode == 2
    assert b"Usage: trainmon" in ended.stderr + ended.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(state: State, shell: str) -> None:
    assert b"_TRAINMON_COMPLETE" in state.call("completion", shell).stdout
    state.environment.update(
        COMP_WORDS="trainmon repl",
        COMP_CWORD="repl" if shell == "fish" else "1",
        _TRAINMON_COMPLETE=f"{shell}_complete",
    )
    told = state.call().stdout.decode()
    assert "replay" in told and "doctor" not in told
