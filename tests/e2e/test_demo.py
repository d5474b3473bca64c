"""The demo, under trainmon, as the README starts it: a real run with all that a report promises."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Box

pytestmark = pytest.mark.long  # the run alone takes some ten seconds

STEPS = 40


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a run of the demo."""
    box = Box(tmp_path_factory.mktemp("demo"))
    command = ["run", "--no-tui", "--price", "2", "--", sys.executable, "demo/rl_code.py", "--steps", str(STEPS)]
    done = trainmon(box, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") >= STEPS
    assert b"wall time" in done.stderr
    report: dict[str, Any] = json.loads(trainmon(box, "report", "last", "--json").stdout)
    return report


def trainmon(box: Box, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "monitor", *words], env=box.environment, cwd=ROOT, capture_output=True, timeout=110
    )


def test_every_key_of_the_contract_is_there(told: dict[str, Any]) -> None:
    for part, keys in {
        "run": "id name command host started ranks facts",
        "outcome": "state exit_code signal",
        "progress": "steps_done steps_total steps_ok steps_skipped skipped fraction eta_seconds elapsed_seconds cost "
        "cost_total",
        "throughput": "steps_per_second tokens_per_second samples_per_second mfu",
        "wall": "total startup steps spans between_steps teardown",
        "dropped": "events lines",
    }.items():
        assert set(keys.split()) <= set(told[part])
    for row in told["phases"]:
        assert {"name", "share", "mean", "p50", "p95", "max", "clock"} <= set(row)
    for row in told["metrics"].values():
        assert {"last", "mean", "min", "max", "count", "nonfinite"} <= set(row)
    assert {"slow_steps", "startup", "gpus", "host", "ranks", "findings", "alerts"} <= set(told)


def test_steps_phases_and_metrics(told: dict[str, Any]) -> None:
    progress = told["progress"]
    assert (progress["steps_done"], progress["steps_total"], progress["fraction"]) == (STEPS, STEPS, 1.0)
    assert progress["steps_ok"] + progress["steps_skipped"] == STEPS
    assert progress["skipped"] == {"empty code generated": progress["steps_skipped"]}
    assert progress["steps_skipped"] > 0
    phases = {row["name"]: row for row in told["phases"]}
    assert {"generation", "test_generation", "log_probs", "execution", "training", "other"} <= set(phases)
    assert sum(row["share"] for row in phases.values()) == pytest.approx(1)
    for role in ("generator", "discriminator"):
        for name in ("reward", "loss", "gen_passed", "gen_total", "val_passed", "val_total"):
            assert told["metrics"][f"{role}/{name}"]["count"] > 0
    assert told["throughput"]["tokens_per_second"] > 0


def test_the_wall_time_adds_up(told: dict[str, Any]) -> None:
    wall = told["wall"]
    parts = wall["startup"] + wall["steps"] + sum(wall["spans"].values()) + wall["between_steps"] + wall["teardown"]
    assert parts == pytest.approx(wall["total"], rel=0.01)
    assert {"eval", "checkpoint"} <= set(wall["spans"])
    assert "load models" in {row["name"] for row in told["startup"]}


def test_outcome_and_losses(told: dict[str, Any]) -> None:
    ended = {"state": "finished", "exit_code": 0, "signal": None}
    assert told["outcome"] == ended | {"error": None, "place": None, "left": None}
    assert told["dropped"] == {"events": 0, "lines": 0, "broken_off": 0, "parts": 0}
    assert told["run"]["name"] == "rl-code"
