"""Environments that are stepped where nothing learns from them: actors of a learner, and programs without optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.test_episodes import told
from tests.auto.watched import Watched, watched

WORLD = """
import multiprocessing as mp
import sys, time
import gymnasium as gym
class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(2)
    def __init__(self, length=10):
        self.length = length
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.observation_space.sample(), {}
    def step(self, action):
        time.sleep(0.002)
        self.at += 1
        return self.observation_space.sample(), 0.5 * (1 + self.at % 2), self.at >= self.length, False, {}
def episodes(env, counted, stop):
    env.reset()
    while not stop():
        _, _, ended, _, _ = env.step(0)
        counted[0] += 1
        if ended:
            counted[1] += 1
            env.reset()
"""
# What acts: a process of the program, a worker of its own vector, one that evaluates beside a learner that collects.
LEARNS = """
import torch
def act(number, queue, over):
    counted = [0, 0]
    def stop():
        queue.put(counted[0])
        return over.is_set()
    episodes(World(), counted, stop)
    queue.put(counted)
    queue.close()
    queue.join_thread()
def main():
    context = mp.get_context("{start}")
    queue, over = context.Queue(), context.Event()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    actors = [context.Process(target=act, args=(number, queue, over)) for number in range({actors})]
    for actor in actors:
        actor.start()
    for _ in actors:
        queue.get()  # a spawned process takes its time to import
    own, mine, until = {own}, [0, 0], time.monotonic() + 5.0
    while time.monotonic() < until:
        for _ in actors and range(16):
            queue.get()
        if own is not None:
            left = iter(range(15))
            episodes(own, mine, lambda: next(left, None) is None)
        optimizer.zero_grad()
        model(torch.randn(16, 4)).pow(2).mean().backward()
        optimizer.step()
    over.set()
    ended = []
    while len(ended) < len(actors):
        told = queue.get()
        if isinstance(told, list):
            ended.append(told)
    counted = [mine] if own is not None else ended
    print("counted", *(sum(column) for column in zip(*counted)))
if __name__ == "__main__":
    main()
"""
VECTOR = """
import torch
def main():
    envs = gym.vector.AsyncVectorEnv([World, World], context="{start}")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    states, _ = envs.reset()
    until, count, ended = time.monotonic() + 5.0, 0, 0
    while time.monotonic() < until:
        for _ in range(10):
            states, _, over, _, _ = envs.step(envs.action_space.sample())
            count, ended = count + 2, ended + int(over.sum())
        optimizer.zero_grad()
        model(torch.from_numpy(states)).pow(2).mean().backward()
        optimizer.step()
    envs.close()
    print("counted", count, ended)
if __name__ == "__main__":
    main()
"""
ALONE = """
{imports}
env, counted, generation = World(), [0, 0], 0
until = time.monotonic() + 4.0
while time.monotonic() < until:
    left = iter(range(205))  # it cuts an episode off in the middle, and resets for the next
    episodes(env, counted, lambda: next(left, None) is None)
    {prints}
    generation += 1
print("counted", counted[0], counted[1] + generation)
"""


def ran(tmp_path: Path, text: str) -> tuple[Watched, tuple[int, int]]:
    """Return a run of this program, with the environment steps and episodes that it has counted itself."""
    (tmp_path / "rl.py").write_text(WORLD + text)
    run = watched(tmp_path / "state", str(tmp_path / "rl.py"))
    assert run.code == 0, run.err
    steps, episodes = map(int, run.out.rpartition("counted ")[2].split())
    return run, (steps, episodes)


@pytest.mark.long
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_actor_processes_are_counted_and_joined_to_their_learner(tmp_path: Path, start: str) -> None:
    run, counted = ran(tmp_path, LEARNS.format(start=start, actors=2, own=None))
    assert told(run)[:2] == counted
    report = run.report
    assert report.run.ranks == 1 and report.progress.steps_done > 20
    assert report.throughput.collected.env_steps_per_second
    roles = {role.role: {part.name for part in role.parts} for role in report.cycle.roles} if report.cycle else {}
    assert "rollout" in roles["actors"]
    assert "worker-wait" in {finding.code for finding in report.findings} or report.findings == []
    assert report.dropped.broken_off == 0


@pytest.mark.long
def test_a_process_that_steps_beside_a_learner_that_collects_evaluates(tmp_path: Path) -> None:
    run, counted = ran(tmp_path, LEARNS.format(start="fork", actors=1, own="World(7)"))
    assert told(run)[0] == counted[0]
    assert {role.role for role in run.report.cycle.roles} == {None}


@pytest.mark.long
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_workers_of_a_vector_are_counted_once(tmp_path: Path, start: str) -> None:
    run, counted = ran(tmp_path, VECTOR.format(start=start))
    # A vector's step after an episode only resets: no step of the environment, as the library counts them.
    assert told(run)[1] == pytest.approx(counted[1], abs=2)
    assert told(run)[0] == pytest.approx(counted[0], rel=0.02)
    assert not list(run.run.glob("actor-*"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("imports", "prints"),
    [
        ("import torch", "print('generation', generation, 'mean_return', 31.4, flush=True)"),
        ("import torch", "pass"),
        ("", "print('generation', generation, 'mean_return', 31.4, flush=True)"),
    ],
)
def test_a_program_without_an_optimizer_has_its_environment_steps_and_episodes(
    tmp_path: Path, imports: str, prints: str
) -> None:
    run, counted = ran(tmp_path, ALONE.format(imports=imports, prints=prints))
    steps, episodes, (least, _, most) = told(run)
    assert (steps, episodes) == counted and (least, most) == (5, pytest.approx(10))
    report, generations = run.report, run.out.count("generation")
    assert report.progress.steps_done == generations
    assert report.throughput.collected.env_steps_per_second
    assert all("Python" not in line for finding in report.findings for line in finding.evidence)


@pytest.mark.long
def test_a_short_look_at_an_environment_is_no_training(tmp_path: Path) -> None:
    run, _ = ran(tmp_path, ALONE.format(imports="import torch", prints="until = 0.0"))
    assert not list(run.run.glob("actor-*")) and not list(run.run.glob("rank-*"))


LATER = """
import torch
states, until = [], time.monotonic() + 2.5
env = World()
counted = [0, 0]
episodes(env, counted, lambda: time.monotonic() > until)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    time.sleep(0.005)
    optimizer.zero_grad()
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
print("counted", *counted)
"""


@pytest.mark.long
def test_a_process_that_learns_after_it_has_collected_is_a_training_like_any(tmp_path: Path) -> None:
    run, counted = ran(tmp_path, LATER)
    assert [path.name.split("-")[0] for path in run.run.glob("*.jsonl") if "-" in path.name].count("rank") == 1
    assert not list(run.run.glob("actor-*"))
    report = run.report
    assert (report.progress.steps_done, report.run.source, report.run.ranks) == (60, "hooks", 1)
    assert told(run)[0] == counted[0]
