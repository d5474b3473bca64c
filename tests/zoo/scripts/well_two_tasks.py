"""Two tasks in turns, one three times as heavy as the other: step times of two kinds."""

import random

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
trunk = nn.Linear(64, 400)
heads = nn.ModuleDict(
    {"small": nn.Linear(400, 8), "large": nn.Sequential(nn.Linear(400, 1200), nn.ReLU(), nn.Linear(1200, 8))}
)
model = nn.ModuleDict({"trunk": trunk, "heads": heads})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(600):
    task = "large" if random.random() < 0.3 else "small"
    x = torch.randn(256, 64)
    y = (x[:, 0] > 0).long()
    loss = nn.functional.cross_entropy(heads[task](torch.relu(trunk(x))), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"{step} {task} {loss.item():.4f}")
