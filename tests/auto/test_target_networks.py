"""A DQN whose target network gets the trained weights, or does not, and copies that stay as they are on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.auto.watched import long, watched

SCRIPT = """
import collections, copy, random, sys
import gymnasium as gym
import torch
from torch import nn

KIND = sys.argv[1]
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)
env = gym.make("CartPole-v1")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 2)
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.copy = Net(), Net()
        self.copy.load_state_dict(self.online.state_dict())

both = Both()  # which is never called itself
online, copied = both.online, both.copy
if KIND == "random":
    copied = Net()  # to be predicted
optimizer = torch.optim.Adam(online.parameters(), 1e-3)
buffer = collections.deque(maxlen=5000)
state, _ = env.reset(seed=0)
for step in range(4000 if KIND == "never" else 1400):  # some of them are looked at, by time
    with torch.no_grad():
        now = torch.from_numpy(state)[None]
        action = int(online(now).argmax()) if random.random() > 0.2 else env.action_space.sample()
        if KIND == "opponent" and random.random() > 0.5:
            action = int(copied(-now).argmax())
    new, reward, done, cut, _ = env.step(action)
    buffer.append((torch.from_numpy(state), action, reward, torch.from_numpy(new), float(done)))
    state = new
    if done or cut:
        state, _ = env.reset()
    if len(buffer) < 200:
        continue
    before, actions, rewards, after, ends = zip(*random.sample(buffer, 32))
    before, after = torch.stack(before), torch.stack(after)
    with torch.no_grad():
        is_target = KIND in ("never", "average", "rarely")
        values = (copied if is_target else online)(after).max(1)[0]
        goal = torch.tensor(rewards, dtype=torch.float32) + 0.99 * (1 - torch.tensor(ends)) * values
        others = copied(before) if KIND in ("reference", "random") else None
    chosen = online(before)
    loss = (chosen.gather(1, torch.tensor(actions)[:, None])[:, 0] - goal).square().mean()
    if others is not None:
        loss = loss + 0.1 * (chosen - others).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if KIND == "average":
        for own, theirs in zip(copied.parameters(), online.parameters()):
            own.data.copy_(0.001 * theirs.data + 0.999 * own.data)
    if KIND == "rarely" and step == 1000:
        copied.load_state_dict(online.state_dict())
"""


def told(tmp_path: Path, kind: str) -> tuple[dict[str, Any], list[str]]:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = watched(tmp_path, str(tmp_path / "script.py"), kind)
    assert run.code == 0, run.err
    found = run.facts.get("target_network", {})
    assert isinstance(found, dict)
    return found, [finding.code for finding in run.report.findings]


@pytest.mark.long
def test_a_target_that_is_never_updated_is_told_first(tmp_path: Path) -> None:
    found, codes = told(tmp_path, "never")
    assert found["unchanged"] >= 16 and found["alike"] < found["unchanged"]
    assert codes[0] == "target-not-updated"


@pytest.mark.long
@pytest.mark.parametrize("kind", [long("average"), "rarely", "reference", long("random"), long("opponent")])
def test_other_copies_are_not(tmp_path: Path, kind: str) -> None:
    found, codes = told(tmp_path, kind)
    assert not found.get("unchanged") and "target-not-updated" not in codes
