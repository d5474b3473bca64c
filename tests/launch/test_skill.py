"""`trainmon skill`: a page for coding agents, followed with nothing else, command by command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli import cli
from monitor.diagnosis.explain import CODES
from monitor.diagnosis.rule import MIN_STEPS

from .conftest import ROOT, State

PAGE = (ROOT / "monitor" / "commands" / "skill.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS += re.findall(r"`(trainmon [a-z][^`]*)`", PAGE)
# A loader that is slow, or with --fast is not.
TRAINING = """
import sys, time
import trainhooks as th
def batches():
    for index in range(60):
        time.sleep(0.0005 if "--fast" in sys.argv else 0.02)
        yield index
for index in th.steps(batches()):
    with th.phase("forward"):
        time.sleep(0.005)
    th.log(loss=1 / (index + 1))
"""


def test_the_page_is_short_and_a_skill(state: State) -> None:
    assert state.call("skill").stdout.decode() == PAGE
    assert len(PAGE.splitlines()) < 120
    head = re.match(r"---\nname: trainmon\ndescription: (.*)\n---\n", PAGE)
    assert head and len(head[1]) < 1024  # as much as agents read of it
    assert f"Most findings need {MIN_STEPS} steps or more" in PAGE


def test_every_command_and_option_exists() -> None:
    for words in (line.split() for line in COMMANDS):
        assert words[0] == "trainmon"
        verb = cli.commands[words[1]]
        own = words[: words.index("--")] if "--" in words else words
        known = {name for parameter in verb.params for name in parameter.opts}
        assert {word for word in own if word.startswith("--")} <= known, words


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_page_is_followed(state: State, tmp_path: Path) -> None:
    """Each command as it stands, one after another, in a shell: the culprit is found, and gone in the next run."""
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "bin").mkdir()
    for name, words in (("trainmon", "-m monitor"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        script.chmod(0o755)
    environment = {**state.environment, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    told: dict[str, str] = {}
    script = "\n".join(f"echo '#{place}'; {line}\ncode=$?; echo; echo =$code" for place, line in enumerate(COMMANDS))
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    for place, output, code in re.findall(r"^#(\d+)\n(.*?)\n=(\d+)$", done.stdout, re.DOTALL | re.MULTILINE):
        told[COMMANDS[int(place)]] = output
        expected = "2" if " stack " in COMMANDS[int(place)] else "0"  # which is for a run that hangs; this one is over
        assert code == expected, (COMMANDS[int(place)], output, done.stderr)
    assert list(told) == COMMANDS
    waited = json.loads(told["trainmon wait first --until critical,step=30,end --timeout 10m"].splitlines()[1])
    assert waited["result"] == "met"
    assert "[input-bound]" in told["trainmon report first"] and "input-bound" in CODES
    assert json.loads((tmp_path / "first.json").read_text())["findings"][0]["code"] == "input-bound"
    assert "# input-bound: " in told["trainmon explain input-bound"]
    assert "x faster (" in told["trainmon compare first second"]
    assert "Last values" in told["trainmon compare first second"]
    assert [run["name"] for run in json.loads(told["trainmon ls --json"])] == ["second", "first"]
    assert (tmp_path / "steps.csv").read_text().count("\n") == 61


def test_the_keys_that_the_page_names_are_there(state: State) -> None:
    shown = json.loads(state.call("schema", "report").stdout)["$defs"]
    part = PAGE[PAGE.index("Keys to begin with") :].partition("\n\n")[0]
    types = {
        **{"outcome": "Outcome", "findings[]": "Finding", "progress": "Progress", "throughput": "Throughput"},
        **{"phases[]": "PhaseRow", "metrics": "MetricRow"},
    }
    for key, names in re.findall(r"`([\w.\[\]]+)` \(([\w, ]+)\)", " ".join(part.split())):
        if key in types:
            assert set(names.split(", ")) <= set(shown[types.pop(key)]["properties"]), key
    assert not types
    assert {"verdict", "slow_steps", "unnamed"} <= set(shown["Report"]["properties"])
