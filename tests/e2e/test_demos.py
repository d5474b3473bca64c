"""The demos that know nothing of trainmon, and the C++ one that does: bare, and under `trainmon run`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Box

pytestmark = pytest.mark.timeout(400)  # imports alone take minutes on a box that is busy

TRAINMON = [sys.executable, "-m", "monitor"]
SFT_STEPS, SWEEP_STEPS, DDP_STEPS, CPP_STEPS = 10, 10, 20, 120
GRPO_STEPS, PPO_ITERATIONS, PPO_ENVS = 120, 20, 4
PPO_ROLLOUT, PPO_UPDATES = 128, 16  # steps of each environment in an iteration, and optimizer steps
OF_THE_MACHINE = {"cpu-starved", "disk-slow", "slow-startup", "swap"}  # findings that a busy box may have
SFT = [sys.executable, "demo/sft_trainer.py", "--steps", str(SFT_STEPS), "--eval-every", "10", "--save-every", "5"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(box: Box, *command: str) -> subprocess.CompletedProcess[str]:
    # On a busy box two threads that wait for each other at each matrix are slower by far than one.
    environment = {**box.environment, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done


def watch(box: Box, *command: str) -> subprocess.CompletedProcess[str]:
    return start(box, *TRAINMON, "run", "--no-tui", "--", *command)


def report(box: Box, run: str = "last") -> dict[str, Any]:
    told: dict[str, Any] = json.loads(start(box, *TRAINMON, "report", run, "--json").stdout)
    wall = told["wall"]
    parts = wall["startup"] + wall["steps"] + sum(wall["spans"].values()) + wall["between_steps"] + wall["teardown"]
    assert parts == pytest.approx(wall["total"], rel=0.02)
    assert sum(row["share"] for row in told["phases"]) == pytest.approx(1)
    assert told["dropped"] == {"events": 0, "lines": 0, "broken_off": 0, "parts": 0}
    return told


def losses(said: str) -> list[float]:
    """Every loss that was printed, by whatever kind of program."""
    return [float(number) for number in re.findall(r"loss'?:? '?([0-9.]+[0-9])", said, re.IGNORECASE)]


@pytest.mark.long
def test_the_fine_tune_is_the_same_bare_and_watched(box: Box) -> None:
    bare, watched = start(box, *SFT), watch(box, *SFT)
    assert losses(bare.stdout) == losses(watched.stdout)
    assert len(losses(bare.stdout)) == 3  # logged, evaluated, and the mean
    told = report(box)
    progress = told["progress"]
    assert (progress["steps_done"], progress["steps_total"]) == (SFT_STEPS, SFT_STEPS)
    assert {"data", "forward", "backward", "optimizer"} <= {row["name"] for row in told["phases"]}
    assert {"eval", "checkpoint"} <= set(told["wall"]["spans"])
    assert told["throughput"]["tokens_per_second"] > 0
    assert told["metrics"]["loss"]["count"] > 0


def complaints(told: dict[str, Any]) -> set[str]:
    return {row["code"] for row in told["findings"] if row["severity"] != "info"} - OF_THE_MACHINE


@pytest.mark.long
def test_ppo_learns_and_its_environment_steps_are_counted(box: Box) -> None:
    words = ["--iterations", str(PPO_ITERATIONS), "--envs", str(PPO_ENVS)]
    done = watch(box, sys.executable, "demo/ppo_cartpole.py", *words)
    returns = [float(number) for number in re.findall(r"return ([0-9.]+)", done.stdout)]
    assert len(returns) == PPO_ITERATIONS
    assert returns[-1] > 100 and returns[-1] > 3 * returns[0]
    told = report(box)
    assert told["progress"]["steps_done"] == PPO_ITERATIONS * PPO_UPDATES
    phases = {row["name"]: row for row in told["phases"]}
    assert {"rollout", "forward", "backward", "optimizer"} <= set(phases)
    assert phases["rollout"]["count"] == PPO_ITERATIONS
    env_steps = told["metrics"]["env_steps"]
    assert env_steps["count"] * env_steps["mean"] == PPO_ITERATIONS * PPO_ENVS * PPO_ROLLOUT
    assert told["metrics"]["episode_return"]["max"] > 100
    assert complaints(told) == set()


@pytest.mark.long
def test_grpo_learns_from_its_rewards(box: Box) -> None:
    done = watch(box, sys.executable, "demo/grpo_arithmetic.py", "--steps", str(GRPO_STEPS))
    rewards = [float(number) for number in re.findall(r"'reward': '([0-9.]+)'", done.stdout)]
    assert len(rewards) == GRPO_STEPS // 10
    assert rewards[0] < 0.2 and rewards[-1] > 2.5 * rewards[0]
    told = report(box)
    progress = told["progress"]
    assert (progress["steps_done"], progress["steps_total"]) == (GRPO_STEPS, GRPO_STEPS)
    assert {"generation", "reward", "forward", "backward"} <= {row["name"] for row in told["phases"]}
    assert told["metrics"]["reward"]["last"] == pytest.approx(rewards[-1], abs=1e-3)
    # The first steps are long because the model has not yet learned to end its texts, which is no fault of the data.
    assert complaints(told) <= {"length-outliers"}


@pytest.mark.long
def test_the_sweep_is_a_run_for_each_rate(box: Box) -> None:
    rates = ["1e-3", "1e-2"]
    options = ["--steps", str(SWEEP_STEPS), "--group", "of-this-test"]
    done = start(box, sys.executable, "demo/lr_sweep.py", *options, "--rates", *rates)
    assert len(re.findall(r"lr +1e-[23]  validation loss [0-9.]+", done.stdout)) == len(rates)
    assert done.stdout.count("<- best") == 1
    listed = {row["name"]: row for row in json.loads(start(box, *TRAINMON, "ls", "--json").stdout)}
    assert set(listed) == {f"lr-{rate}" for rate in rates}
    assert start(box, *TRAINMON, "ls").stdout.count("group=of-this-test") == len(rates)
    for rate in rates:
        assert listed[f"lr-{rate}"]["tags"]["group"] == "of-this-test"
        told = report(box, f"lr-{rate}")
        assert told["run"]["facts"]["tags"] == {
            "group": "of-this-test",
            "lr": rate,
            "planned": str(len(rates)),
        }
        assert told["progress"]["steps_done"] == SWEEP_STEPS
        assert told["outcome"]["state"] == "finished"


@pytest.mark.long
def test_one_rate_alone_bare(box: Box) -> None:
    done = start(box, sys.executable, "demo/lr_sweep.py", "--lr", "1e-3", "--steps", "20")
    first, second, reached = losses(done.stdout)
    assert first > second > 0 and reached > 0
    assert not (box.path / "runs").exists()


@pytest.mark.long
def test_the_ranks_are_one_run(box: Box) -> None:
    done = watch(box, *TORCHRUN, "demo/ddp.py", "--steps", str(DDP_STEPS), "--uneven")
    first, second = losses(done.stdout)
    assert first > second > 0
    told = report(box)
    assert told["run"]["ranks"] == 2
    assert told["progress"]["steps_done"] == DDP_STEPS
    assert [(row["rank"], row["steps"]) for row in told["ranks"]] == [(0, DDP_STEPS), (1, DDP_STEPS)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build: Path = tmp_path_factory.mktemp("cpp")
    make = ["make", "--silent", "-C", str(ROOT / "demo" / "cpp"), f"BUILD={build}", "CXXFLAGS=-O2"]
    subprocess.run(make, check=True, timeout=100)
    return build


def cpp(program: Path) -> list[str]:
    return [str(program), "--iters", str(CPP_STEPS), "--log-every", "20", "--eval-every", "60", "--batch", "64"]


@pytest.mark.long
def test_the_cpp_trainer_prints_what_it_prints_and_learns(box: Box, built: Path) -> None:
    line = rf"Iter (\d+)/{CPP_STEPS} \| Loss: ([0-9.]+) \| LR: [0-9.]+e-0[0-9] \| Tok/s: [0-9]+"
    for said in (start(box, *cpp(built / "trainer")).stdout, watch(box, *cpp(built / "trainer")).stdout):
        found = re.findall(line, said)
        assert [int(step) for step, _ in found] == list(range(20, CPP_STEPS + 1, 20))
        assert float(found[0][1]) > float(found[-1][1]) + 0.3
    told = report(box)
    assert (told["progress"]["steps_done"], told["progress"]["steps_total"]) == (CPP_STEPS, CPP_STEPS)
    assert told["metrics"]["loss"]["count"] == CPP_STEPS // 20
    assert told["throughput"]["tokens_per_second"] > 0


@pytest.mark.long
def test_the_cpp_trainer_s_own_journal_is_exact(box: Box, built: Path) -> None:
    watch(box, *cpp(built / "trainer-native"))
    told = report(box)
    assert told["run"]["name"] == "char-mlp"
    progress = told["progress"]
    assert (progress["steps_done"], progress["steps_total"]) == (CPP_STEPS, CPP_STEPS)
    shares = {row["name"]: row["share"] for row in told["phases"]}
    assert {"data", "forward", "backward", "optimizer"} <= set(shares)
    assert shares["forward"] + shares["backward"] > 0.5
    assert "eval" in told["wall"]["spans"]
    assert told["metrics"]["loss"]["count"] == CPP_STEPS and told["metrics"]["val_loss"]["count"] == 2
    assert told["throughput"]["tokens_per_second"] == pytest.approx(64 * told["throughput"]["steps_per_second"])
