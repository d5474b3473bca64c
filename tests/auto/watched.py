"""A script run twice, bare and under `trainmon run`, and what its journals tell of the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitor.model.report import Report
from monitor.runs.follow import load
from tests.journal_lines import events_in
from tests.protocol.typed import untyped
from trainhooks.program_errors import DEBUG_VARIABLE
from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
LIMIT = 110.0  # seconds, against hanging
# What a cluster's or another test's environment must not lend to the scripts.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", rundir.RUN_VARIABLE)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def long(*values: Any) -> Any:
    """Return values of a parametrized test that only the long tests try."""
    return pytest.param(*values, marks=pytest.mark.long)


@dataclass
class Watched:
    """One run under trainmon."""

    run: Path
    code: int
    out: str
    err: str

    @property
    def journals(self) -> list[Path]:
        return sorted(self.run.glob("rank-*.jsonl"))

    def events(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        (journal,) = self.run.glob(f"rank-{rank}-*.jsonl")
        return [event for event in events_in(journal) if event["kind"] == kind]

    def steps(self, rank: int = 0) -> list[dict[str, Any]]:
        steps = self.events("step", rank)
        assert [step["index"] for step in steps] == list(range(1, len(steps) + 1))
        return steps

    def spans(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.events("span") if span["name"] == name]

    def counted(self, what: str, rank: int = 0) -> int:
        return sum(step.get(what, 0) for step in self.steps(rank))

    @property
    def report(self) -> Report:
        return load(self.run).report

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self.events("facts"):
            found.update(event.get("facts", {}))
        assert not untyped(found)
        return found


def environment(state: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, rundir.STATE_VARIABLE: str(state), DEBUG_VARIABLE: "1", "PYTHONPATH": str(ROOT)}


def watched(state: Path, *command: str, env: dict[str, str] | None = None) -> Watched:
    """Run `python COMMAND` under trainmon, with more in its environment; `err` is the program's alone."""
    words = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", sys.executable, *command]
    ended = _run(words, state, env)
    (run,) = state.glob("runs/*")
    head, _, _ = ended.stderr.partition("trainmon: ")  # its own short report
    return Watched(run, ended.returncode, ended.stdout, head)


def both(state: Path, script: str, *arguments: str, launcher: tuple[str, ...] = (), code: int = 0) -> Watched:
    """Run a script bare and watched: it must print and return the same, and every step must add up."""
    command = [*launcher, str(SCRIPTS / script), *arguments]
    with ThreadPoolExecutor(1) as beside:
        alone = beside.submit(_run, [sys.executable, *command], state / "bare")
        seen = watched(state / "watched", *command)
        bare = alone.result()
    assert bare.returncode == code, bare.stderr
    assert (seen.code, seen.out) == (bare.returncode, bare.stdout)
    assert _comparable(seen.err) == _comparable(bare.stderr)
    for journal in seen.journals:
        adds_up(events_in(journal))
    return seen


def adds_up(events: list[dict[str, Any]]) -> None:
    """Phases fill no more than their step, and steps follow one another."""
    before = 0.0
    for step in (event for event in events if event["kind"] == "step"):
        assert step["start"] >= before - 1e-9
        assert abs(step["start"] + step["duration"] - step["t"]) < 1e-6
        assert all(seconds >= 0 for _, seconds, _, _ in step.get("phases", ()))
        assert sum(seconds for _, seconds, _, _ in step.get("phases", ())) <= step["duration"] + 1e-6
        before = step["t"]


def phases(step: dict[str, Any]) -> dict[str, float]:
    return {name: seconds for name, seconds, _, _ in step.get("phases", ())}


def entered(step: dict[str, Any]) -> dict[str, int]:
    return {name: times for name, _, _, times in step.get("phases", ())}


def _run(words: list[str], state: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={**environment(state), **(env or {})},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def _comparable(stderr: str) -> str:
    """Without what differs from run to run: times, process ids and ports of log lines."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith(("W1", "I1", "[W", "[rank")))
