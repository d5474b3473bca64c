"""The mean over all losses so far, summed up anew at each step; it reads harmless for the first hundred steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
history = []


def statistics(values):
    ordered = sorted(values, key=lambda value: (round(value, 3), value))
    mean = sum(ordered) / len(ordered)
    return mean, sum((value - mean) ** 2 for value in ordered) / len(ordered)


for step in range(400):
    x = torch.randn(256, 64)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history += (model.weight.detach().flatten()[:200] - x[0, 0]).tolist()
    mean, variance = statistics(history)
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}  mean {mean:.3f}  var {variance:.3f}")
