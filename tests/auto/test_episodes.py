"""Episodes, and which environments the learner sees: lists, limits of the program's own, evaluations, threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainhooks.auto.rl.acting import PUT_INTERVAL, Acting
from trainhooks.auto.rl.instances import Counts, Instance
from trainhooks.lane_entries import AGGREGATE
from trainhooks.protocol.vocabulary import ENV_STEPS, EPISODES

from .test_rollouts import WORLD
from .watched import Watched, long, watched

Script = Callable[..., Watched]


def stepped(instance: Instance, *ends: bool, reward: float = 1.0) -> None:
    for end in ends:
        instance.steps(None, (0, reward, end, False, {}), 0)


def test_an_episode_ends_where_the_program_resets_but_only_after_a_step() -> None:
    instance = Instance(None)
    instance.resets(None)
    stepped(instance, False, False)
    instance.resets(None)
    instance.resets(None)
    stepped(instance, False, False, True)
    instance.resets(None)
    counts = instance.counts
    assert (counts.episodes, counts.returns, counts.steps) == (2, (5.0, 2.0, 3.0), 5)


def test_the_last_episode_of_a_program_s_own_limit_has_no_reset_behind_it() -> None:
    for limit, told in ((3, 3), (2, 2)):
        instance = Instance(None)
        for _ in range(2):
            stepped(instance, False, False, False)
            instance.resets(None)
        stepped(instance, *[False] * limit)
        instance.ends_at_limit()
        assert instance.counts.episodes == told


def test_the_last_episode_is_put_where_its_steps_were_put_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Any] = []
    monkeypatch.setattr("trainhooks.session.side_put", lambda: entries.append)
    acting, instance = Acting(None, 0), Instance(None)
    for turn in range(3):
        stepped(instance, False, False)
        acting.env_step_ends(instance, (1 + turn) * PUT_INTERVAL)
        instance.resets(None) if turn < 2 else acting.finish()
    told = [entry[1] for entry in entries if entry[0] is AGGREGATE]
    assert [sum(metrics.get(name, 0) for metrics in told) for name in (ENV_STEPS, EPISODES)] == [6, 3]
    assert ENV_STEPS not in told[-1], "no steps are no value of theirs"


def test_steps_beyond_the_end_of_an_episode_belong_to_none() -> None:
    instance = Instance(None)
    for _ in range(2):
        instance.resets(None)
        stepped(instance, False, False, True, True, True)  # cut off, which the program overlooks
    assert (instance.counts.episodes, instance.counts.returns, instance.counts.steps) == (2, (6.0, 3.0, 3.0), 10)


def test_episodes_of_one_step_and_those_of_an_environment_that_resets_itself_count() -> None:
    bandit, automatic = Instance(None), Instance(None)
    stepped(bandit, True, True, True)
    stepped(automatic, False, True, False, True)
    assert (bandit.counts.episodes, automatic.counts.episodes) == (3, 2)


def test_a_vector_s_reset_ends_what_is_under_way() -> None:
    instance, never = Instance(None), np.zeros(2, bool)
    for at in range(3):
        instance.steps(None, (0, np.ones(2), np.array([at == 1, False]), never, {}), 0)
    instance.resets(np.array([True, False]))
    assert (instance.counts.episodes, instance.is_midway()) == (2, True)
    instance.resets(None)
    assert (instance.counts.returns, instance.is_midway()) == ((6.0, 1.0, 3.0), False)


def test_counts_join_with_their_extremes() -> None:
    one, other = Counts(), Counts()
    for counts, values in ((one, (4.0,)), (other, (-1.0, 9.0))):
        for value in values:
            counts.add_episode(value, 2)
    one.take(other)
    found = one.metrics()
    assert (found["episodes"], found["episode_return"], found["episode_return_min"]) == (3, 4.0, -1.0)
    assert "episodes" not in other.metrics()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def run(text: str) -> Watched:
        (tmp_path / "rl.py").write_text(WORLD + text)
        run = watched(tmp_path / "state", str(tmp_path / "rl.py"))
        assert run.code == 0, run.err
        return run

    return run


def told(run: Watched) -> tuple[float, int, tuple[float | None, ...]]:
    """Return environment steps, episodes, and lowest, mean and highest length."""
    metrics = run.report.metrics
    steps = metrics["env_steps"]
    length = metrics["episode_length"]
    return round((steps.mean or 0) * steps.count), length.count, (length.min, length.mean, length.max)


ACT = """
def act(state):
    with torch.no_grad():
        return agent.act(torch.from_numpy(state))[0].item()
def update():
    learn(agent.act(torch.randn(16, 4))[2].pow(2).mean())
def episode(env, limit=10**9):
    state, _ = env.reset()
    ended = False
    while not ended and limit:
        state, _, ended, _, _ = env.step(act(state))
        limit -= 1
"""
GOES_ON = """
env, other = {train}, {other}
state, _ = env.reset()
{before}
for iteration in range(12):
    for _ in range(25):
        state, _, ended, cut, _ = env.step(act(state))
        if ended or cut:
            state, _ = env.reset()
    for _ in range(3):
        update()
    for _ in range({episodes}):
        episode(other)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "other", "before", "episodes"),
    [
        ("World(0.001)", "World(0.001, 7)", "", 4),
        long("gym.wrappers.TimeLimit(World(0.001, 99), 10)", "World(0.001, 7)", "episode(other)", 4),
        long("World(0.001)", "World(0.001)", "", 0),
    ],
)
def test_an_environment_that_lives_in_whole_episodes_beside_one_that_goes_on_evaluates(
    script: Script, train: str, other: str, before: str, episodes: int
) -> None:
    run = script(ACT + GOES_ON.format(train=train, other=other, before=before, episodes=episodes))
    assert told(run) == (300, 30, (10, 10, 10))
    assert len(run.spans("eval")) == (12 + bool(before) if episodes else 0)
    assert len(run.steps()) == 36


EVERY_FIFTH = """
env, other = World(0.001), World(0.001, 7)
for iteration in range(20):
    if iteration % 5 == 0:
        episode(other)
    for _ in range(3):
        episode(env)
    update()
episode(other)
"""


@pytest.mark.long
def test_an_environment_that_some_updates_do_without_evaluates(script: Script) -> None:
    run = script(ACT + EVERY_FIFTH)
    assert told(run) == (600, 60, (10, 10, 10))
    assert len(run.spans("eval")) == 4  # the first one is known too late: it is a part of the first rollout
    assert len(run.steps()) == 20


WHOLE = """
for iteration in range(10):
    for _ in range(3):
        episode({env}, {limit})
    update()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("head", "env", "limit", "lengths"),
    [
        ("env = World()", "env", 100, (10, 10, 10)),
        ("env = gym.wrappers.TimeLimit(World(), 50)", "env", 4, (4, 4, 4)),
        ("", "World(0.0, 6)", 100, (6, 6, 6)),  # a new one for each episode
        long("envs = [World(0.0, 5), World(0.0, 9), World(0.0, 7)]", "envs[_]", 100, (5, 7, 9)),
    ],
)
def test_whole_episodes_that_the_learner_sees_are_counted_exactly(
    script: Script, head: str, env: str, limit: int, lengths: tuple[float, ...]
) -> None:
    run = script(ACT + head + WHOLE.format(env=env, limit=limit))
    assert told(run) == (30 * lengths[1], 30, lengths)


@pytest.mark.long
def test_plain_environments_in_turns_and_wrappers_of_the_program(script: Script) -> None:
    run = script(
        ACT
        + """
class Skip(gym.Wrapper):
    def step(self, action):
        for _ in range(2):
            result = self.env.step(action)
        return result
envs = [Skip(World(0.0, length)) for length in (4, 8, 20)]
states = [env.reset()[0] for env in envs]
for iteration in range(20):
    for _ in range(7):
        for at, env in enumerate(envs):
            states[at], _, ended, _, _ = env.step(act(states[at]))
            if ended:
                states[at], _ = env.reset()
    update()
"""
    )
    assert told(run) == (3 * 140, 70 + 35 + 14, (2, pytest.approx(420 / 119, abs=0.1), 10))


THREAD = """
import threading
stop = threading.Event()
def acting():
    env = World(0.002)
    while not stop.is_set():
        episode(env)
        counted.append(10)
counted = []
{main}
thread = threading.Thread(target=acting)
thread.start()
for _ in range(150):
    {step}
    update()
    time.sleep(0.005)
stop.set()
thread.join()
print(sum(counted), len(counted))
"""


@pytest.mark.long
def test_an_actor_thread_is_counted_and_works_beside_the_loop(script: Script) -> None:
    run = script(ACT + THREAD.format(main="", step=""))
    steps, episodes = map(int, run.out.split())
    assert told(run) == (steps, episodes, (10, 10, 10))
    assert "rollout" in {name for step in run.steps() for name, *_ in step.get("background", ())}


@pytest.mark.long
def test_a_thread_that_evaluates_beside_a_loop_that_collects_is_not_counted(script: Script) -> None:
    main = "env = World()\nstate, _ = env.reset()\nstate, _, _, _, _ = env.step(act(state))"
    step = "state, _, ended, _, _ = env.step(act(state))\n    if ended: state, _ = env.reset()"
    run = script(ACT + THREAD.format(main=main, step=step))
    assert told(run) == (151, 15, (10, 10, 10))
