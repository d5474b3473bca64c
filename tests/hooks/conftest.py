"""Real trainings: small scripts in processes of their own, and what their journals tell afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitor.model.report import Report
from monitor.runs.follow import load
from tests.journal_lines import events_in
from trainhooks.program_errors import DEBUG_VARIABLE
from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 110.0  # against hanging; no claim about speed

PREAMBLE = """
import glob, os, sys, time, threading
import trainhooks as th
from time import sleep

def in_journal(mark):
    until = time.monotonic() + 30
    while not any(mark in open(path).read() for path in glob.glob(os.environ['TRAINMON_DIR'] + '/runs/*/rank-*')):
        assert time.monotonic() < until, 'not written'
        sleep(0.01)

def written():
    'Wait until all that was said so far stands in the journal.'
    th.note('written so far')
    in_journal('written so far')
"""

# What another test's or a cluster's environment must not lend to the scripts.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "SLURM_LOCALID")


def wait_for(condition: Callable[[], object], seconds: float = LIMIT) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def lines_of(journal: Path) -> list[dict[str, Any]]:
    """Every event of a journal. A half line or one that is no JSON fails the test that asks."""
    data = journal.read_bytes()
    assert data.endswith(b"\n") or not data, "a half line at the end"
    return events_in(journal)


def phases_of(step: dict[str, Any]) -> dict[str, float]:
    return {name: seconds for name, seconds, _, _ in step.get("phases", [])}


@dataclass
class Told:
    """What the trainings under one state directory told."""

    state: Path
    code: int = 0
    out: str = ""
    err: str = ""

    @property
    def journals(self) -> list[Path]:
        return sorted(self.state.glob("runs/*/rank-*.jsonl"))

    @property
    def run(self) -> Path:
        (run,) = self.state.glob("runs/*")
        return run

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the only producer. Its numbers must rise by one, whatever the test is about."""
        (journal,) = self.journals
        events = lines_of(journal)
        assert [event["seq"] for event in events] == list(range(len(events)))
        return events

    def kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.kind("step")

    @property
    def indices(self) -> list[int]:
        return [step["index"] for step in self.steps]

    @property
    def spans(self) -> dict[str, dict[str, Any]]:
        return {span["name"]: span for span in self.kind("span")}

    @property
    def report(self) -> Report:
        return load(self.run).report


class Trainings:
    """Starts scripts in a state directory of the test's own."""

    def __init__(self, state: Path, work: Path) -> None:
        self.state = state
        self.work = work
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in (*FOREIGN, rundir.RUN_VARIABLE)}
        ours = {rundir.STATE_VARIABLE: str(self.state), DEBUG_VARIABLE: "1", "PYTHONPATH": str(ROOT)}
        return {**kept, **ours, **more}

    def start(self, source: str, *, plain: bool = False, **environment: str) -> subprocess.Popen[str]:
        """Start a script; `th` and some modules are imported for it unless it is `plain`."""
        script = self.work / f"train{len(self.started)}.py"
        script.write_text(("" if plain else PREAMBLE) + textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, str(script)],
            env=self.environment(**environment),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def __call__(self, source: str, *, code: int = 0, quiet: bool = True, **options: Any) -> Told:
        """Run a script to its end. Unless told otherwise it must end well, and say nothing on its own."""
        process = self.start(source, **options)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == code, err
        if quiet:
            assert err == ""
        return Told(self.state, process.returncode, out, err)


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Trainings]:
    trainings = Trainings(tmp_path / "state", tmp_path)
    yield trainings
    for process in trainings.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
