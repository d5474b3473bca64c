"""Ray, started for each test: its workers are ranks, its plain actors roles, on its own cluster and on one that ran."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import State, wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray"),
]

# Reinforcement learning by plain actors: the learner and the critic wait while the two rollouts sleep.
ACTORS = """
import os, sys, time
import ray, torch
from torch import nn

@ray.remote(num_cpus=0)
class Rollout:
    def __init__(self):
        self.policy = nn.Linear(8, 4)

    def collect(self, weights):
        self.policy.load_state_dict(weights)
        time.sleep(0.2)
        return torch.randn(64, 8)

class Trainer:
    def __init__(self):
        self.model = nn.Linear(8, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def weights(self):
        return self.model.state_dict()

    def path(self):
        return os.environ.get("PYTHONPATH", "").split(os.pathsep)

    def learn(self, batches):
        for batch in batches:
            self.optimizer.zero_grad()
            loss = self.model(batch).square().mean()
            loss.backward()
            time.sleep(0.01)
            self.optimizer.step()
        print("step 77777 loss", loss.item(), flush=True)
        return loss.item()

class Learner(Trainer): pass
class Critic(Trainer): pass

ray.init(address=sys.argv[1], **({"num_cpus": 2, "include_dashboard": False} if sys.argv[1] == "local" else {}))
learner, critic = (ray.remote(num_cpus=0)(kind).remote() for kind in (Learner, Critic))
rollouts = [Rollout.remote() for _ in range(2)]
for step in range(1, 21):
    weights = learner.weights.remote()
    batches = ray.get([rollout.collect.remote(weights) for rollout in rollouts])
    ray.get([learner.learn.remote(batches), critic.learn.remote(batches)])
    print(f"step {step} loss 0.5", flush=True)
print("PATH", *ray.get(learner.path.remote()))
"""

TRAIN = """
import ray, time, torch
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def train_func():
    data = TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
    loader = train.torch.prepare_data_loader(DataLoader(data, batch_size=16))
    model = train.torch.prepare_model(nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    print("epoch 7 loss 0.25", flush=True)

ray.init(address="local", num_cpus=2, include_dashboard=False)
TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})).fit()
"""

# What serves a learner: coroutines, generators of both kinds, and tasks.
SERVERS = """
import asyncio, time
import ray, torch
ray.init(address="local", num_cpus=2, include_dashboard=False)

@ray.remote(num_cpus=0)
class Server:
    async def generate(self, number):
        await asyncio.sleep(0.1)
        return number
    async def stream(self, count):
        for number in range(count):
            await asyncio.sleep(0.01)
            yield number

@ray.remote(num_cpus=0)
class Source:
    def batches(self, count):
        for number in range(count):
            time.sleep(0.01)
            yield number

@ray.remote(num_cpus=0)
class Learner:
    def __init__(self):
        self.model = torch.nn.Linear(8, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters())
    def learn(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(16, 8)).square().mean().backward()
        time.sleep(0.02)
        self.optimizer.step()

@ray.remote
def score(text):
    time.sleep(0.02)
    return len(text)

@ray.remote
def fail():
    raise ValueError("as it is")

server, source, learner = Server.remote(), Source.remote(), Learner.remote()
for step in range(12):
    assert ray.get([server.generate.remote(number) for number in range(8)]) == list(range(8))
    assert [ray.get(one) for one in server.stream.remote(5)] == [ray.get(one) for one in source.batches.remote(5)]
    ray.get(learner.learn.remote())
    assert ray.get([score.remote("x" * number) for number in range(4)]) == list(range(4))
try:
    ray.get(fail.remote())
except ValueError as error:
    print("FRAMES", str(error).count("File "))
"""


@pytest.fixture
def ray_state(state: State) -> State:
    state.environment.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    return state


@pytest.fixture
def cluster(ray_state: State) -> Iterator[str]:
    """The address of a cluster of one node, started without trainmon, with a PYTHONPATH of its own."""
    directory = tempfile.mkdtemp(prefix="tmray", dir="/tmp")  # paths of sockets are short
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = f"start --head --block --port={port} --num-cpus=2 --include-dashboard=false --temp-dir={directory}"
    with open(f"{directory}/log", "w+b") as log:
        node = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), *words.split()],
            env={**ray_state.environment, "PYTHONPATH": "/the/cluster's/own"},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(lambda: b"Ray runtime started" in Path(log.name).read_bytes(), 120)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(node.pid, signal.SIGTERM)
            node.wait(60)
    shutil.rmtree(directory, ignore_errors=True)


def reported(state: State, script: str, *words: str) -> tuple[dict[str, Any], str]:
    path = state.path.parent / "program.py"
    path.write_text(script)
    ended = state.run(sys.executable, str(path), *words, timeout=240)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(state.call("report", "--json").stdout)
    return report, ended.stdout.decode()


def check_roles(report: dict[str, Any]) -> None:
    """Everything that an actor does is a role of one run, with its own share of waiting."""
    assert report["run"]["name"] == "program" and report["group"] is None
    assert {row["rank"]: row["steps"] for row in report["ranks"]} == {0: 40, 1: 40}, "the trainers, no rank shared"
    roles = {role["role"]: {part["name"]: part["share"] for part in role["parts"]} for role in report["cycle"]["roles"]}
    assert set(roles) == {"Learner", "Critic", "Rollout"}
    # Of an iteration the rollouts take 0.2 s, and the two others 20 ms each.
    assert roles["Rollout"]["idle"] > 0
    for name in ("Learner", "Critic"):
        assert roles["Rollout"]["rollout"] > roles[name]["learn"] > 0
        assert roles[name]["idle"] > roles["Rollout"]["idle"]
    assert all(role["steps"] > 0.5 for role in report["cycle"]["roles"])
    codes = {finding["code"] for finding in report["findings"]}
    assert not codes & {"work-between-steps", "straggler", "checkpoint-stall"}


def test_actors_are_roles_of_one_run(ray_state: State) -> None:
    report, _ = reported(ray_state, ACTORS, "local")
    check_roles(report)
    (console,) = ray_state.only.glob("console-*.jsonl")
    assert "77777" not in console.read_text(), "a worker's lines are not the driver's"


def test_workers_of_a_running_cluster_join(ray_state: State, cluster: str) -> None:
    report, output = reported(ray_state, ACTORS, cluster)
    check_roles(report)
    path = next(line for line in output.splitlines() if line.startswith("PATH")).split()[1:]
    assert "/the/cluster's/own" in path and "${PYTHONPATH}" not in path


def test_workers_of_ray_train_are_ranks(ray_state: State) -> None:
    report, _ = reported(ray_state, TRAIN)
    assert report["run"]["ranks"] == 2 and report["group"] is None and report["cycle"] is None
    assert [row["steps"] for row in report["ranks"]] == [20, 20]
    assert report["run"]["name"] == "program"


def test_coroutines_generators_and_tasks_are_roles(ray_state: State) -> None:
    report, output = reported(ray_state, SERVERS)
    assert "FRAMES 1" in output, "the program sees its own frames alone"
    roles = {role["role"]: {part["name"]: part["share"] for part in role["parts"]} for role in report["cycle"]["roles"]}
    assert {"Server", "Source", "Learner", "score"} <= set(roles), roles
    # Eight coroutines of 0.1 s run beside each other; each task takes 20 ms.
    assert roles["Server"]["rollout"] > roles["score"]["reward"] > 0 and roles["Source"]["idle"] > 0, roles
