"""The first step makes a table that all others use."""

import math

import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, length=64, width=64):
        super().__init__()
        self.length, self.width, self.table = length, width, None

    def forward(self, x):
        if self.table is None:
            rows = []
            for _ in range(60):
                rows = [
                    [math.sin(p / 10000 ** (2 * (i // 2) / self.width) + i % 2) for i in range(self.width)]
                    for p in range(self.length * 4)
                ]
            self.table = torch.tensor(rows)[: self.length]
        return x + self.table


torch.manual_seed(0)
model = nn.Sequential(Positions(), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(300):
    x = torch.randn(32, 64, 64)
    loss = (model(x) - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step} loss {loss.item():.4f}")
