"""Several trainings under one command: told apart where they are several, and one where they are one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.model import member_states
from monitor.model.report import Report
from monitor.reports.report_json import as_json
from monitor.reports.run_text import summary
from tests.auto.watched import watched

HEAD = """
import argparse, subprocess, sys, time, torch
from torch import nn
torch.set_num_threads(1)
def model(width=16): return nn.Sequential(nn.Embedding(20, width), nn.Linear(width, 20))
def step(net, optimizer, times):
    for _ in range(times):
        x = torch.randint(0, 20, (4, 8))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        time.sleep(0.002)
"""
SWEEP = """
def fit(lr, width):
    time.sleep(0.3)
    net = model(width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)  # holds the optimizer until it is collected
    step(net, optimizer, 40)
for lr, width in ((1e-4, 16), (1e-1, 16), (1e-3, 16)):
    fit(lr, width)
"""
# What a program prints belongs to the training that it is printed in, though it is read apart from the steps.
PRINTED = """
parser = argparse.ArgumentParser()
parser.add_argument("--rates", type=float, nargs="+")
print("Target val loss: 0.001")
for lr in parser.parse_args().rates:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    for n in range(80):
        step(net, optimizer, 1)
        time.sleep(0.04)
        if n % 4 == 0:
            print(f"iter {n}/80 | val loss: {1 + (lr - 0.01) ** 2 + 1 / (n + 1):.4f}", flush=True)
"""
CHILDREN = """
if len(sys.argv) == 1:
    for lr in ("1e-4", "1e-1", "1e-3"):
        subprocess.run([sys.executable, sys.argv[0], "--lr", lr], check=True)
else:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    time.sleep(0.3)
    net = model()
    step(net, torch.optim.AdamW(net.parameters(), lr=parser.parse_args().lr), 40)
"""
# One training each: what follows the first optimizer is no training of its own.
ALIKE = {
    "a second stage": """
net = model()
step(net, torch.optim.SGD(net[1].parameters(), lr=0.1), 40)
step(net, torch.optim.SGD(net.parameters(), lr=0.01), 40)
""",
    "a probe in between": """
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    step(net, optimizer, 20)
    probe = nn.Linear(16, 2)
    inner = torch.optim.SGD(probe.parameters(), lr=0.1)
    for _ in range(20):
        inner.zero_grad()
        probe(torch.randn(4, 16)).sum().backward()
        inner.step()
        time.sleep(0.01)
step(net, optimizer, 20)
""",
    "rounds": """
for _ in range(10):
    net = model()
    step(net, torch.optim.SGD(net.parameters(), lr=0.1), 5)
""",
    "two models in turn": """
one, other = model(), model()
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
for _ in range(20):
    step(one, first, 1)
    step(other, second, 1)
""",
}

Reported = Callable[..., Report]


@pytest.fixture
def reported(tmp_path: Path) -> Reported:
    def run(source: str, *arguments: str) -> Report:
        script = tmp_path / "train.py"
        script.write_text(HEAD + source)
        seen = watched(tmp_path / "state", str(script), *arguments)
        assert (seen.code, seen.err) == (0, "")
        return seen.report

    return run


@pytest.mark.long
@pytest.mark.parametrize("source", [SWEEP, CHILDREN], ids=["one process", "processes"])
def test_each_training_has_figures_of_its_own(reported: Reported, source: str) -> None:
    report = reported(source)
    group = report.group
    assert group is not None and group.done == len(group.members) == 3
    assert [(row.number, row.state, row.steps_done) for row in group.members] == [
        (number, "finished", 40) for number in (1, 2, 3)
    ]
    assert [float(row.settings["lr"]) for row in group.members] == [1e-4, 1e-1, 1e-3]
    assert not any("width" in row.settings or "weight_decay" in row.settings for row in group.members)  # they agree
    for row in group.members:
        assert row.startup_seconds is not None and row.elapsed_seconds is not None and row.steps_per_second is not None
        assert 0.3 <= row.startup_seconds < row.elapsed_seconds  # the sleep is no step
        assert row.tokens_per_second == pytest.approx(32 * row.steps_per_second)  # from the first step on
        assert row.best is not None and row.best.metric == "loss" and len(row.curve) >= 2
    assert group.best is not None and group.best.number == 2  # the only rate at which forty steps learn anything
    assert report.progress.steps_done == 40
    assert report.wall.total == pytest.approx(group.members[group.shown - 1].elapsed_seconds)
    assert sum(seconds for _, seconds in report.wall.parts) == pytest.approx(report.wall.total)
    assert group.elapsed_seconds is not None and group.elapsed_seconds > 3 * 0.3
    (line,) = [text for name, text in summary(report) if name == "Trainings"]
    assert line.startswith("3, all done; best loss") and "#2, lr 0.1" in line
    assert len(json.loads(as_json(report))["group"]["members"]) == 3


@pytest.mark.long
@pytest.mark.parametrize("kept", [64, 1])
def test_what_is_printed_belongs_to_its_own_training(
    reported: Reported, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(member_states, "MAX_LATE", kept)
    group = reported(PRINTED, "--rates", "0.1", "0.01", "0.001").group
    assert group is not None and (group.done, group.total) == (3, 3)
    assert [row.steps_done for row in group.members] == [80] * 3
    late = group.members[-1 - kept :]  # of the others the lines come too late
    assert [row.steps_total for row in late] == [80] * len(late)
    values = [row.best.value for row in late if row.best is not None and row.best.metric == "val_loss"]
    assert values == pytest.approx([1.0211, 1.0130, 1.0131][-len(late) :], abs=1e-4)
    if len(late) == 3:
        assert group.best is not None and (group.best.metric, group.best.number) == ("val_loss", 2)


@pytest.mark.long
@pytest.mark.parametrize("name", ALIKE)
def test_parts_of_one_training_are_one(reported: Reported, name: str) -> None:
    report = reported(ALIKE[name])
    assert report.group is None
    steps = {"a second stage": 80, "a probe in between": 100, "rounds": 50}
    assert report.progress.steps_done in (steps.get(name), 20, 40)
    assert json.loads(as_json(report))["group"] is None
