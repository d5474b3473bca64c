"""Work between steps, in programs with and without a loader: it is told by the function that the loop calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.watched import watched

HEAD = """
import time, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    def forward(self, x):
        h = x.clone()
        return self.inner(h)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def learn(x):
    optimizer.zero_grad()
    (net(x) - x).square().mean().backward()
    optimizer.step()
"""
# Without a loader no step is open between two steps, and what follows one counts as the next one's.
GENERATES = """
import copy
teacher = copy.deepcopy(net)
@torch.no_grad()
def imagine(model):
    x, until = torch.randn(64, 64), time.perf_counter() + 0.5
    while time.perf_counter() < until:
        x = model(x)
for step in range(60):
    learn(torch.randn(16, 64))
    if step % 6 == 0:
        imagine(teacher)
"""
RENDERS = """
from torch.utils.data import DataLoader
def render(step):
    until, sums = time.perf_counter() + 0.4, []
    while time.perf_counter() < until:
        for row in range(200):
            sums.append((step * row) % 7)
    return sums
for step, x in enumerate(DataLoader(torch.randn(640, 64), batch_size=16)):
    learn(x)
    if step % 5 == 0:
        render(step)
"""
# A little of it now and then.
HEALTHY = GENERATES.replace("+ 0.5", "+ 0.02").replace("range(60)", "range(600)").replace("% 6", "% 200")


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "name"),
    [(GENERATES, "imagine()"), (RENDERS, "render()"), (HEALTHY, None)],
    ids=["generates", "renders", "healthy"],
)
def test_work_between_steps_is_told_by_name(tmp_path: Path, script: str, name: str | None) -> None:
    (tmp_path / "script.py").write_text(HEAD + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    told = [finding for finding in run.report.findings if finding.code in ("work-between-steps", "unaccounted-time")]
    found = [finding for finding in told if finding.severity != "info"]  # what is unnamed in steps of a millisecond
    assert [finding.code for finding in found] == (["work-between-steps"] if name else [])
    assert all(finding.title.endswith(f" in {name}") for finding in found)
