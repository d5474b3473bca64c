"""Jobs of a real Slurm: two slurmd on this machine are two nodes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.conftest import State, wait_for
from tests.remote.cluster import MISSING, Cluster
from tests.remote.conftest import trainings

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(bool(MISSING), reason=f"no Slurm here (slurm-wlm): {', '.join(MISSING)}"),
]


@pytest.fixture
def cluster(tmp_path: Path, state: State) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "slurm", state)
    yield made
    made.end()


def _words(steps: int, seconds: float) -> str:
    return shlex.join(["trainmon", "run", "--", *trainings(steps, seconds)])


def _report(state: State, *words: str) -> dict[str, Any]:
    done = state.call("report", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _listed(state: State) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(state.call("ls", "--json").stdout)
    return found


def test_the_tasks_of_a_step_are_one_run(cluster: Cluster, state: State) -> None:
    done = cluster.call("srun", "-N2", "-n2", *shlex.split(_words(20, 0.05)))
    assert done.returncode == 0, done.stderr
    assert len(state.runs()) == 2
    (row,) = _listed(state)
    assert (row["state"], row["step"], row["steps_total"]) == ("finished", 20, 20)
    report = _report(state, "last")
    assert report["run"]["id"] == row["id"] and report["run"]["ranks"] == 2
    assert [(rank["rank"], rank["steps"]) for rank in report["ranks"]] == [(0, 20), (1, 20)]
    assert report["outcome"]["state"] == "finished" and not any(report["dropped"].values())
    cluster.call("srun", "-N2", "-n2", *shlex.split(_words(5, 0.01)))  # the same command again is another run
    assert [row["step"] for row in _listed(state)] == [5, 20]
