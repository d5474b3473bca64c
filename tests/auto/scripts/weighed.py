"""Run another script, and print the living tensors at its last optimizer step, and those left in a function of ours."""

import gc
import runpy
import sys
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def living():
    tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
    return len(tensors), sum(tensor.nbytes for tensor in tensors)


def train():
    """Train in a function, and say which tensors of its first step and of its model are left when it has let go."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    left = [weakref.ref(model), weakref.ref(model[0].weight)]
    for _ in range(20):
        batch = torch.randn(32, 64)
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        left += [weakref.ref(batch), weakref.ref(loss)]
    del model, optimizer, batch, loss
    gc.collect()
    return sum(reference() is not None for reference in left)


if sys.argv[1:]:
    sys.argv = sys.argv[1:]
    weights = []
    register_optimizer_step_post_hook(lambda *_: weights.append(living()))
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("alive:", weights[-1])
else:
    print("left:", train())
