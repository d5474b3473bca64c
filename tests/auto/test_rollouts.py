"""Rollouts of unmodified programs: environments stepped for training, for evaluation, by wrappers and in vectors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .watched import Watched, long, watched

WORLD = """
import json, sys, time
import gymnasium as gym
import numpy as np
import torch

class World(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (4,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seconds=0.0, length=10):
        self.seconds, self.length = seconds, length

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds)
        self.at += 1
        return np.full(4, self.at / 10, np.float32), 0.5, self.at >= self.length, False, {}

class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
        self.critic = torch.nn.Linear(4, 1)

    def act(self, x):
        choice = torch.distributions.Categorical(logits=self.actor(x))
        action = choice.sample()
        return action, choice.log_prob(action), self.critic(x)

torch.manual_seed(0)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
spent = {"rollout": 0.0, "all": 0.0}

def learn(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

ON_POLICY = """
env = {env}
state, _ = env.reset(seed=0)
began = time.perf_counter()
for _ in range(6):
    t = time.perf_counter()
    for _ in range(25):
        with torch.no_grad():
            action, _, _ = agent.act(torch.from_numpy(np.asarray(state)).float())
        state, reward, ended, cut, _ = env.step({action})
        if {reset}:
            state, _ = env.reset()
    spent["rollout"] += time.perf_counter() - t
    for _ in range(4):
        learn(agent.act(torch.randn(64, 4))[2].pow(2).mean())
spent["all"] = time.perf_counter() - began
print(json.dumps(spent))
"""

EPISODES = """
env = World(0.002, 10)
began = time.perf_counter()
for episode in range(20):
    env.length = 5 + episode
    state, _ = env.reset()
    ended, losses = False, []
    while not ended:
        t = time.perf_counter()
        action, score, value = agent.act(torch.from_numpy(state))
        state, reward, ended, _, _ = env.step(action.item())
        spent["rollout"] += time.perf_counter() - t
        losses.append(value.pow(2).mean() - score)
    learn(torch.stack(losses).sum())
spent["all"] = time.perf_counter() - began
print(json.dumps(spent))
"""


@pytest.fixture
def script(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(text: str) -> Watched:
        path = tmp_path / "rl.py"
        path.write_text(WORLD + text)
        return watched(tmp_path / "state", str(path))

    return run


def shares(run: Watched) -> dict[str, float]:
    return {row.name: row.share for row in run.report.phases}


@pytest.mark.parametrize(
    ("env", "action", "reset", "count"),
    [
        long("World(0.002)", "action.item()", "ended", 1),
        ("gym.wrappers.TimeLimit(World(0.002, 99), 10)", "action.item()", "ended or cut", 1),
        ("gym.vector.SyncVectorEnv([lambda: World(0.001)] * 3)", "action.numpy()", "False", 3),
    ],
)
@pytest.mark.long
def test_an_on_policy_loop(script, env: str, action: str, reset: str, count: int) -> None:  # type: ignore[no-untyped-def]
    run = script(ON_POLICY.format(env=env, action=action, reset=reset))
    spent = json.loads(run.out)
    assert shares(run)["rollout"] == pytest.approx(spent["rollout"] / spent["all"], abs=0.05)
    assert run.report.progress.steps_done == 24  # the optimizer's
    metrics = run.report.metrics
    assert metrics["env_steps"].mean * metrics["env_steps"].count == 6 * 25 * count
    assert metrics["episodes"].mean * metrics["episodes"].count >= 12 * count
    assert metrics["episode_length"].mean == 10
    assert metrics["episode_return"].mean == pytest.approx(5.0)
    assert run.report.throughput.collected.env_steps_per_second is not None
    assert not run.spans("eval")
    assert not {"slow-steps", "eval-heavy", "eval-mode"} & {finding.code for finding in run.report.findings}


# As TD3 is written: actions are chosen with gradients, also in its evaluation, and the actor learns every other time.
OFF_POLICY = """
actor = torch.optim.Adam(agent.actor.parameters())
critic = torch.optim.Adam(agent.critic.parameters())

def act(state):
    return agent.actor(torch.from_numpy(state)).argmax().item()

def descend(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def evaluate():
    env = World(0.004, 20)
    (state, _), ended = env.reset(), False
    while not ended:
        state, _, ended, _, _ = env.step(act(state))

env = World(0.004, 10)
spent.update(eval=0.0)
evaluate()
state, _ = env.reset()
began = time.perf_counter()
for at in range(120):
    t0 = time.perf_counter()
    state, _, ended, _, _ = env.step(act(state))
    if ended:
        state, _ = env.reset()
    t1 = time.perf_counter()
    states = torch.randn(512, 4)
    descend(critic, agent.critic(states).pow(2).mean())
    if at % 2:
        descend(actor, agent.actor(states).pow(2).mean())
    t2 = time.perf_counter()
    if at % 15 == 14:
        evaluate()
    spent["rollout"] += t1 - t0
    spent["eval"] += time.perf_counter() - t2
spent["all"] = time.perf_counter() - began
for _ in range(15):  # which it does not learn from any more
    state, _, ended, _, _ = env.step(act(state))
    if ended:
        state, _ = env.reset()
print(json.dumps(spent))
"""


@pytest.mark.long
def test_actions_chosen_with_gradients_are_rollout_or_evaluation(script) -> None:  # type: ignore[no-untyped-def]
    run = script(OFF_POLICY)
    spent, found = json.loads(run.out), shares(run)
    row = run.report.metrics["env_steps"]
    assert (row.mean * row.count, run.report.metrics["episode_length"].count) == (135, 13)
    assert found["rollout"] == pytest.approx(spent["rollout"] / (spent["all"] - spent["eval"]), abs=0.06)
    first, *others = run.spans("eval")  # the first one comes before all learning, and before the program's own clock
    assert len(others) == 8 and first["duration"] == pytest.approx(spent["eval"] / 8, rel=0.5)
    assert sum(span["duration"] for span in others) == pytest.approx(spent["eval"], rel=0.15)


@pytest.mark.long
def test_calls_with_gradients_before_an_environment_s_step_are_rollout(script) -> None:  # type: ignore[no-untyped-def]
    run = script(EPISODES)
    spent, found = json.loads(run.out), shares(run)
    assert found["rollout"] == pytest.approx(spent["rollout"] / spent["all"], abs=0.05)
    assert [step["metrics"]["env_steps"] for step in run.steps()] == [5 + number for number in range(20)]


@pytest.mark.long
def test_longer_episodes_are_no_drift(script) -> None:  # type: ignore[no-untyped-def]
    longer = EPISODES.replace("range(20)", "range(60)").replace("5 + episode", "2 + episode").replace("0.002", "0.0005")
    assert "slow-drift" not in {finding.code for finding in script(longer).report.findings}


@pytest.mark.long
def test_environments_of_a_program_that_trains_on_other_data_evaluate_it(script) -> None:  # type: ignore[no-untyped-def]
    run = script("""
env = World(0.002)
for epoch in range(3):
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=8):
        learn(agent.act(batch)[2].pow(2).mean())
    state, _ = env.reset()
    for _ in range(20):
        with torch.no_grad():
            action, _, _ = agent.act(torch.from_numpy(state))
        state, *_ = env.step(action.item())
""")
    assert "rollout" not in shares(run)
    assert len(run.spans("eval")) == 3
    assert "env_steps" not in run.report.metrics


@pytest.mark.long
def test_an_environment_of_the_program_is_copied_and_saved_as_without_the_hooks(tmp_path: Path, script) -> None:  # type: ignore[no-untyped-def]
    saved = tmp_path / "saved.pickle"
    run = script(f"""
import cloudpickle, copy, inspect, pickle
env = World()
for _ in range(3):
    state, _ = env.reset()
    for _ in range(3):
        state, *_ = env.step(0)
    learn(agent.act(torch.from_numpy(state))[2].pow(2).mean())
assert set(vars(env)) == {{"seconds", "length", "at", "_np_random", "_np_random_seed"}} & set(vars(env)), vars(env)
assert copy.deepcopy(env).step(0)[1] == pickle.loads(pickle.dumps(env)).step(0)[1] == 0.5
assert list(inspect.signature(World.step).parameters) == ["self", "action"]
open({str(saved)!r}, "wb").write(cloudpickle.dumps(World))
""")
    assert run.code == 0, run.err
    assert [step["metrics"]["env_steps"] for step in run.steps()] == [3, 3, 3]
    load = "import pickle, sys; env = pickle.load(open(sys.argv[1], 'rb'))(); env.reset(); print(env.step(0)[1])"
    bare = subprocess.run([sys.executable, "-I", "-c", load, str(saved)], capture_output=True, text=True, check=False)
    assert (bare.returncode, bare.stdout.strip()) == (0, "0.5"), bare.stderr


@pytest.mark.long
def test_a_failing_environment_fails_as_without_the_hooks(script) -> None:  # type: ignore[no-untyped-def]
    run = script("""
class Broken(World):
    def step(self, action):
        raise RuntimeError("fell over")
env = Broken()
env.reset()
env.step(0)
""")
    assert run.code == 1
    assert "fell over" in run.err
    assert "trainhooks" not in run.err


FORMS = """
import json, sys, time
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024))
        self.blocks = nn.ModuleList([nn.Linear(1024, 1024) for _ in range(2)])
        self.head = nn.Linear(1024, 10)

    def loss(self, x, y):
        x = self.body(x)
        for block in self.blocks:
            x = F.relu(block(x))
        return F.cross_entropy(self.head(x), y)

model = Model()
layers = [nn.Linear(512, 512) for _ in range(7)]
head = nn.Linear(512, 10)

def loose(x, y):
    for layer in layers:
        x = F.relu(layer(x))
    return F.cross_entropy(head(x), y)

form = sys.argv[1]
compute = loose if form == "loose" else model.loss
parameters = [p for part in ([*layers, head] if form == "loose" else [model]) for p in part.parameters()]
optimizer = None if form == "by hand" else torch.optim.SGD(parameters, lr=0.01)
spent = {"forward": 0.0, "all": 0.0}
began = time.perf_counter()
for _ in range(60):
    t = time.perf_counter()
    loss = compute(x, y)
    spent["forward"] += time.perf_counter() - t
    time.sleep(0.002)  # between forward and backward
    loss.backward()
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()
    else:
        with torch.no_grad():
            for p in parameters:
                p -= 0.01 * p.grad
                p.grad = None
spent["all"] = time.perf_counter() - began
print(json.dumps(spent))
"""


@pytest.mark.parametrize("form", ["method", long("loose"), long("by hand")])
@pytest.mark.long
def test_forward_has_a_name_where_no_outermost_module_is_called(tmp_path: Path, form: str) -> None:
    path = tmp_path / "form.py"
    path.write_text(FORMS)
    run = watched(tmp_path / "state", str(path), form)
    spent = json.loads(run.out)
    assert run.report.progress.steps_done == 60
    assert shares(run)["forward"] == pytest.approx(spent["forward"] / spent["all"], abs=0.06)
    assert "forwards" not in run.facts  # its parts' calls are not counted as calls of the model
    assert not any("forwards" in step for step in run.steps())
