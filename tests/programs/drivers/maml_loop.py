"""A MAML loop by `torch.autograd.grad` that prints "Step 1/18", as many tutorials write it."""

import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
meta = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(18):
    losses = []
    for _ in range(8):
        amplitude, phase = torch.rand(1) * 5, torch.rand(1) * 3
        x = torch.rand(40, 1) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        fast = dict(model.named_parameters())
        for _ in range(5):
            inner = nn.functional.mse_loss(functional_call(model, fast, x[:20]), y[:20])
            slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {name: weight - 0.01 * slope for (name, weight), slope in zip(fast.items(), slopes)}
        losses.append(nn.functional.mse_loss(functional_call(model, fast, x[20:]), y[20:]))
    loss = torch.stack(losses).mean()
    meta.zero_grad()
    loss.backward()
    meta.step()
    print(f"Step {step + 1}/18 loss {loss.item():.4f}")
