"""Programs whose own ways once broke the recording, or were disturbed by it: they run as bare and are counted right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto.watched import watched

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def learn(x, model=model, optimizer=optimizer):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
# What the loss has saved is computed again by whoever reads it.
CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
calls = 0
def head(h, mask):
    global calls
    calls += 1
    return (h.square().sum(1) * mask).sum() / mask.sum()
for _ in range(6):
    optimizer.zero_grad()
    checkpoint(head, model(torch.randn(8, 4)), torch.ones(8), use_reentrant=False).backward()
    optimizer.step()
print("calls", calls)
"""
UNDER_VMAP = """
from torch.func import functional_call, grad, vmap
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
    def forward(self, input_ids=None, attention_mask=None):
        return (self.table(input_ids) * attention_mask[..., None]).sum()
masked = Masked()
both = torch.optim.SGD(masked.parameters(), lr=0.01)
def loss(parameters, ids, mask):
    return functional_call(masked, parameters, (), {"input_ids": ids[None], "attention_mask": mask[None]})
for _ in range(6):
    ids = torch.randint(10, (3, 5))
    both.zero_grad()
    masked(input_ids=ids, attention_mask=torch.ones(3, 5, dtype=torch.int64)).backward()
    both.step()
    each = vmap(grad(loss), (None, 0, 0))(dict(masked.named_parameters()), ids, torch.ones(3, 5, dtype=torch.int64))
print("calls", each["table.weight"].shape[0])
"""
AFTER_A_FAILURE = """
class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("out of memory")
try:
    learn(torch.randn(8, 4), optimizer=Failing(model.parameters(), lr=0.01))
except RuntimeError:
    print("calls", 0)
small = nn.Linear(4, 2)
optimizer = torch.optim.SGD(small.parameters(), lr=0.01)
for _ in range(6):
    learn(torch.randn(8, 4), small, optimizer)
"""
LOOKED_AT = """
loader = DataLoader(TensorDataset(torch.randn(10, 4)), batch_size=4)
print("calls", len(next(iter(loader))))
for epoch in range(2):
    for (x,) in loader:
        learn(x)
"""
IN_BACKWARD = """
def update(_):
    optimizer.step()
    optimizer.zero_grad()
next(iter(model.parameters())).register_post_accumulate_grad_hook(update)
for (x,) in DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4):
    model(x).square().mean().backward()
print("calls", 0)
"""
A_THREAD_EACH = """
import threading
def run(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
run(lambda: [learn(torch.randn(8, 4)) for _ in range(3)])
for _ in range(3):
    run(lambda: learn(torch.randn(8, 4)))
print("calls", 0)
"""
WITHOUT_SOCKETS = """
import socket
class Forbidden(socket.socket):
    def __init__(self, *args, **kwargs):
        raise RuntimeError("no sockets in these tests")
socket.socket = Forbidden
for _ in range(6):
    learn(torch.randn(8, 4))
print("calls", 0)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "calls"),
    [
        (CHECKPOINTED, 12), (UNDER_VMAP, 3), (AFTER_A_FAILURE, 0), (LOOKED_AT, 1), (IN_BACKWARD, 0),
        (A_THREAD_EACH, 0), (WITHOUT_SOCKETS, 0),
    ],
    ids=["checkpointed", "under vmap", "after a failure", "looked at", "in backward", "threads", "without sockets"],
)  # fmt: skip
def test_an_odd_program_runs_as_bare_and_its_steps_are_counted(tmp_path: Path, script: str, calls: int) -> None:
    (tmp_path / "script.py").write_text(HEAD + script)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert f"calls {calls}\n" in run.out
    assert len(run.steps()) == 6
    if script == LOOKED_AT:
        assert [step["samples"] for step in run.steps()] == [4, 4, 2, 4, 4, 2]


# As gevent's locks do: who asks one lets the program's other work run.
LOCKS_THAT_YIELD = """
import threading
asked, ask = [], threading.Thread.is_alive
def is_alive(self):
    import sys
    if "/trainhooks/" in sys._getframe(1).f_code.co_filename: asked.append(self.name)
    return ask(self)
threading.Thread.is_alive = is_alive
def train():
    for _ in range(6): learn(torch.randn(8, 4))
train()
for _ in range(3): one = threading.Thread(target=train); one.start(); one.join()
print(asked)
"""


@pytest.mark.long
def test_threads_are_asked_for_no_lock(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + LOCKS_THAT_YIELD)
    seen = watched(tmp_path, str(tmp_path / "train.py"))
    assert (seen.code, seen.out, seen.err) == (0, "[]\n", "")
