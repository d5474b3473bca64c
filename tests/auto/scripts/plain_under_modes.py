"""A training under modes of its own: they see each call of torch, and print what they saw."""

from __future__ import annotations

import collections

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen: collections.Counter[str] = collections.Counter()
ASKED = ("shape", "dim", "numel", "dtype", "device", "requires_grad", "is_cuda", "is_cpu", "__get__")  # no operations


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen[func.__name__] += 1
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 8)), batch_size=4)
for epoch in range(3):
    for (batch,) in loader:
        with (Functions, Operators, torch.enable_grad)[epoch]():
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
print(sorted((name, count) for name, count in seen.items() if name not in ASKED))
