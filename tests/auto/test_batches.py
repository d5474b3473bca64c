"""What a step's batches are, and what is an evaluation; padding without a mask, samples that no shape tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.watched import entered, long, watched

HEAD = """
import random, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(72, 4)), batch_size=4)
others = DataLoader(TensorDataset(torch.randn(20, 4)), batch_size=4)
def learn(x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
def validate():
    model.eval()
    for (x,) in others:
        with torch.no_grad():
            model(x)
    model.train()
"""
CACHED = """
for epoch in range(2):
    kept = []
    for (x,) in loader:
        with torch.no_grad():
            kept.append((x, model(x)))
        if len(kept) < 3:
            continue
        optimizer.zero_grad()
        for x, ahead in kept:
            (model(x) - ahead.mean()).square().mean().backward()
        optimizer.step()
        kept = []
    validate()
"""
# A training accuracy over all of the training's batches, without `model.eval()`: that is an evaluation.
ACCURACY = """
for epoch in range(2):
    for (x,) in loader:
        learn(x)
    for (x,) in loader:
        with torch.no_grad():
            model(x)
"""


@pytest.mark.parametrize(
    ("script", "steps", "samples", "evaluations"),
    [(CACHED, 12, 12, 2), long(ACCURACY, 36, 4, 2)],
    ids=["cached", "accuracy"],
)
def test_passes_ahead_over_batches_that_are_trained_on_are_no_evaluation(
    tmp_path: Path, script: str, steps: int, samples: int, evaluations: int
) -> None:
    (tmp_path / "script.py").write_text(HEAD + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    told = run.steps()
    assert len(told) == steps
    # That passes come ahead is known once their batches are trained on: before that, the first ones look like a test.
    assert {step["samples"] for step in told[1:]} == {samples}
    assert {entered(step)["data"] for step in told[1:]} == {samples // 4}
    spans = [span for span in run.spans("eval") if span["start"] > told[0]["t"]]
    assert len(spans) == evaluations


# Forces are the gradients of an energy by positions: a validation computes them, too.
FORCES = """
class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1))
    def forward(self, x):
        x.requires_grad_(True)
        energy = self.inner(x)
        (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=self.training)
        return energy, -gradient
model = Field()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def loss(x):
    energy, force = model(x)
    return energy.square().mean() + force.square().mean()
for epoch in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        loss(x).backward()
        optimizer.step()
    model.eval()
    print(sum(loss(x).item() for (x,) in others) > 0)
    model.train()
"""
# Gradients of several batches, taken without a backward pass and given to the optimizer.
GIVEN = """
for epoch in range(3):
    for number, (x,) in enumerate(loader):
        (gradient,) = torch.autograd.grad(model(x).square().mean(), [model.weight])
        model.weight.grad = gradient if number % 2 == 0 else model.weight.grad + gradient
        if number % 2:
            optimizer.step()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "steps", "fetches", "evaluations"),
    [(FORCES, 54, 1, 3), long(GIVEN, 27, 2, 0)],
    ids=["forces", "given"],
)
def test_a_validation_that_computes_gradients_is_no_step(
    tmp_path: Path, script: str, steps: int, fetches: int, evaluations: int
) -> None:
    (tmp_path / "script.py").write_text(HEAD + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    told = run.steps()
    assert len(told) == steps and len(run.spans("eval")) == evaluations
    assert {entered(step)["data"] for step in told} == {fetches}
    assert {step["samples"] for step in told} == {4 * fetches}
    assert "eval-gradients" not in [finding.code for finding in run.report.findings]


ROWS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(64, 8), nn.Linear(8, 64)
    def forward(self, ids):
        return self.out(self.table(ids))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
real = whole = 0
def text(least=10, most=40):
    return torch.randint(1, 64, (random.randint(least, most),))
def train(rows, collate):
    global real, whole
    for ids in DataLoader(rows, batch_size=4, collate_fn=collate):
        learn(ids)
        real, whole = real + int((ids != 0).sum()), whole + ids.numel()
"""
PADDED = """
train([text() for _ in range(40)], lambda rows: nn.utils.rnn.pad_sequence(rows, batch_first=True))
print("tokens", real, whole)
"""
PADDED_LEFT = """
def collate(rows):
    longest = max(map(len, rows))
    return torch.stack([torch.cat([torch.zeros(longest - len(row), dtype=torch.int64), row]) for row in rows])
train([text() for _ in range(40)], collate)
print("tokens", real, whole)
"""
# Zeros among the others are values: rows of marks, of which most are at the begin.
MARKS = """
def collate(rows):
    marks = torch.zeros(len(rows), 64, dtype=torch.int64)
    for mark, row in zip(marks, rows):
        mark[row // 2] = 1
    return marks
train([text() for _ in range(40)], collate)
print("tokens", whole, 0)
"""
# Windows of a text whose rows end, now and then, in the same id twice.
WINDOWS = """
rows = [text(32, 32) for _ in range(40)]
for row in rows[::5]:
    row[-1] = row[-2]
train(rows, torch.stack)
print("tokens", whole, 0)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [PADDED, long(PADDED_LEFT), MARKS, long(WINDOWS)],
    ids=["padded", "padded left", "marks", "windows"],
)
def test_padding_without_a_mask_is_known_by_its_id(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(HEAD + ROWS + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    tokens, padded = map(int, run.out.split()[1:])
    assert (run.counted("tokens"), run.counted("padded_tokens")) == (tokens, padded)


# A batch is one graph of several: nodes and edges of all of them, behind one another.
GRAPHS = """
class Batch:
    def __init__(self, graphs):
        self.edge_index = torch.randint(3, (2, 7 * len(graphs)))
        self.x = torch.randn(3 * len(graphs), 4)
for batch in DataLoader(range(18), batch_size=4, collate_fn=Batch):
    learn(batch.x)
"""
# The next batch is fetched before the step on this one; a validation comes between them.
AHEAD = """
batches = iter(loader)
following, done = next(batches), 0
while following is not None:
    (x,), following = following, next(batches, None)
    learn(x)
    done += 1
    if done % 4 == 0:
        validate()
"""
# Batches that are looked at and left out are none that was fetched ahead.
LOOKED_AT = """
for epoch in range(2):
    next(iter(others))
    for (x,) in others:
        learn(x)
"""
LATE = """
optimizers = {}
for (x,) in others:
    model(x).square().mean().backward()
    for parameter in model.parameters():
        if parameter not in optimizers:
            optimizers[parameter] = torch.optim.SGD([parameter], lr=0.01)
        optimizers[parameter].step()
        parameter.grad = None
"""
EARLY = """
optimizers = [torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()]
for (x,) in others:
    model(x).square().mean().backward()
    for one in optimizers:
        one.step()
        one.zero_grad()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "samples"),
    [
        (GRAPHS, [4, 4, 4, 4, 2]),
        (AHEAD, [4] * 18),
        long(LOOKED_AT, [4] * 10),
        (LATE, [4] * 5),
        long(EARLY, [4] * 5),
    ],
    ids=["graphs", "ahead", "looked at", "late optimizers", "early optimizers"],
)
def test_samples_are_what_the_loader_puts_together(tmp_path: Path, script: str, samples: list[int]) -> None:
    (tmp_path / "script.py").write_text(HEAD + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert [step["samples"] for step in run.steps()] == samples
