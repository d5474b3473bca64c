"""Iterations of real programs, live and after their end, held against what the programs measure themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import State, python

PPO = """
import time
import trainhooks as th
spent = {{"rollout": 0.0, "all": 0.0}}
steps = iter(th.steps(range(6 * {updates})))
for iteration in range(6):
    t0 = time.perf_counter()
    for update in range({updates}):
        next(steps)
        if update == 0:
            with th.phase("rollout"):
                time.sleep(0.4)
            spent["rollout"] += time.perf_counter() - t0
        with th.phase("training"):
            time.sleep({learning} / {updates})
    spent["all"] += time.perf_counter() - t0
next(steps, None)
print("TRUTH", spent["rollout"] / spent["all"])
"""
# Answers from a cache in two of three iterations; what lies between the steps is a program that judges them.
CACHED = """
import time
import trainhooks as th
for iteration in range(18):
    if iteration % 3 == 0:
        with th.span("generation"):
            time.sleep(0.2)
    with th.span("execution"):
        time.sleep(0.1)
    for _ in th.steps(range(4)):
        with th.phase("training"):
            time.sleep(0.01)
"""
SUPERVISED = """
import time
import trainhooks as th
for number in th.steps(range(120)):
    with th.phase("data"):
        time.sleep(0.002)
    with th.phase("training"):
        time.sleep(0.01)
"""


def reported(state: State, source: str) -> tuple[dict[str, Any], str]:
    done = state.run(*python(source))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(state.call("report", state.only.name, "--json").stdout)), done.stdout.decode()


@pytest.mark.long
@pytest.mark.parametrize("updates", [4, 320])
def test_any_number_of_steps(state: State, updates: int) -> None:
    report, printed = reported(state, PPO.format(updates=updates, learning=0.4))
    cycle = report["cycle"]
    assert (cycle["count"], cycle["steps"]) == (6, updates)
    shares = {part["name"]: part["share"] for part in cycle["phases"]}
    assert shares["rollout"] == pytest.approx(float(printed.split("TRUTH")[1]), abs=0.03)
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.long
def test_two_kinds_of_iterations(state: State) -> None:
    cycle = reported(state, CACHED)[0]["cycle"]
    kinds = {kind["name"]: kind for kind in cycle["kinds"]}
    assert kinds["rollout, reward"]["share"] == pytest.approx(1 / 3)
    assert kinds["reward"]["share"] == pytest.approx(2 / 3)
    assert kinds["rollout, reward"]["typical_seconds"] > kinds["reward"]["typical_seconds"]


@pytest.mark.long
def test_supervised_training_has_no_iteration(state: State) -> None:
    """The twin."""
    assert reported(state, SUPERVISED)[0]["cycle"] is None


# Nothing is named: a generation is known to have ended once its rewards have run.
SCORED = """
import subprocess, time, torch
class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(32, 64), torch.nn.Linear(64, 32)
        self.rnn = torch.nn.GRU(64, 64, batch_first=True)
    def forward(self, x, h=None):
        y, h = self.rnn(self.embed(x), h)
        return self.head(y), h
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters())
spent = [0.0, 0.0]
def generate(n, length):
    x, h, tokens = torch.zeros(n, 1, dtype=torch.long), None, []
    with torch.no_grad():
        for _ in range(length):
            logits, h = policy(x, h)
            x = torch.distributions.Categorical(logits=logits[:, -1]).sample()[:, None]
            tokens.append(x)
    return torch.cat(tokens, 1)
def compute_reward(answers):
    return torch.tensor([float(len(subprocess.run(["sleep", "0.02"], capture_output=True).args)) for _ in answers])
for iteration in range(25):
    t0 = time.perf_counter()
    answers = generate(4, 64)
    t1 = time.perf_counter()
    rewards = compute_reward(answers)
    t2 = time.perf_counter()
    logits, _ = policy(answers)
    chosen = torch.log_softmax(logits, -1).gather(-1, answers[..., None]).squeeze(-1).sum(1)
    loss = -(chosen * rewards).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    spent = [spent[0] + t1 - t0, spent[1] + t2 - t1]
print("TRUTH", *spent)
"""


def test_what_runs_inside_a_step_that_began_in_hindsight_is_counted_once(state: State) -> None:
    report, output = reported(state, SCORED)
    generation, _ = map(float, output.split("TRUTH")[1].split())
    wall = report["wall"]
    assert wall["spans"].get("execution", 0.0) < 0.1 * wall["steps"], "it is in the reward of the steps"
    assert wall["spans"]["generation"] == pytest.approx(generation, rel=0.3)
    assert wall["startup"] + wall["steps"] + sum(wall["spans"].values()) + wall["between_steps"] + wall[
        "teardown"
    ] == pytest.approx(wall["total"], rel=0.01)
    names = [part["name"] for part in report["cycle"]["phases"]]
    assert "generation" in names and "reward" in names and "execution" not in names, names
