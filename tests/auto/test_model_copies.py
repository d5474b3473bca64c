"""Calls of a copy of the trained model: what it computes again is counted, and what only looks like it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.auto.watched import watched
from trainhooks.auto.models.model_copies import RepeatedInference

SCRIPT = """
import copy, sys
import torch
from torch import nn

KIND = sys.argv[1]
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
reference = copy.deepcopy(policy)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
buffer = torch.randn(64, 8)
for iteration in range(8):
    rows = torch.randn(32, 8)
    with torch.no_grad():
        kept = reference(rows) if KIND == "once" else None
    for epoch in range(4):
        for part in torch.randperm(32).split(16):
            x = rows[part]
            if KIND == "replay":
                buffer = torch.cat((buffer[8:], torch.randn(8, 8)))
                x = buffer[torch.randint(64, (16,))]
            with torch.no_grad():
                theirs = kept[part] if KIND == "once" else reference(x)
            loss = (policy(x) - theirs - 0.1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if KIND == "average":
                with torch.no_grad():
                    for own, trained in zip(reference.parameters(), policy.parameters()):
                        own.lerp_(trained, 0.1)
print(f"{loss.item():.9f}")
"""


def counted(tmp_path: Path, kind: str) -> dict[str, Any]:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = watched(tmp_path, str(tmp_path / "script.py"), kind)
    assert run.code == 0, run.err
    assert len(run.steps()) == 64
    found = run.facts.get("model_copy", {})
    assert isinstance(found, dict)
    return found


@pytest.mark.long
def test_a_reference_that_is_called_in_each_inner_epoch(tmp_path: Path) -> None:
    found = counted(tmp_path, "again")
    assert (found["calls"], found["mixed"]) == (32, 0)  # the report before the last
    assert found["repeated"] == pytest.approx(0.75 * 32, abs=4)
    assert found["rounds"] >= 2
    assert 0 < found["repeated_seconds"] < found["watched_seconds"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["once", "average", "replay"])
def test_copies_that_compute_something_new(tmp_path: Path, kind: str) -> None:
    found = counted(tmp_path, kind)
    assert not found or found["mixed"] > found["repeated"]


def test_equal_rows_of_one_update_are_not_repeated() -> None:
    counts = RepeatedInference()
    assert not counts.is_repeat([1, 2], (0,), (0,))
    assert not counts.is_repeat([1, 2], (0,), (0,))
    assert counts.is_repeat([1, 2], (0,), (1,))


def test_a_copy_with_new_weights_computes_something_new() -> None:
    counts = RepeatedInference()
    for update in range(4):
        assert not counts.is_repeat([1, 2], (update,), (update,))


def test_rounds_are_new_rows_after_repeated_ones() -> None:
    counts = RepeatedInference()
    for update, rows in enumerate(([1], [1], [1], [2], [2], [3])):
        counts.is_repeat(rows, (0,), (update,))
    assert (counts.calls, counts.repeated, counts.rounds, counts.mixed) == (6, 3, 2, 0)


SAMPLER = """
import copy
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
    def forward(self, ids):
        return self.head(self.table(ids))

model = Model()
sampler = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
prompts = torch.arange(20).view(4, 5)
for iteration in range(24):
    ids = prompts
    with torch.no_grad():
        for _ in range(6):
            ids = torch.cat((ids, sampler(ids)[:, -1].argmax(-1, keepdim=True)), 1)
    optimizer.zero_grad()
    model(ids).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_copy_that_samples_by_a_loop_of_its_own_is_a_generator_and_no_reference(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SAMPLER)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert "model_copy" not in run.facts
    weights = run.facts["generator_weights"]
    assert weights["updated"] == weights["unchanged"] >= 8
