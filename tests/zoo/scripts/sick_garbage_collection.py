"""Garbage collected in each step, in the manner of loops that once ran out of memory."""

import gc
import random
import sys

import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
records = [{"x": [random.random(), random.random()]} for _ in range(40_000)]
net = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(3000 if MENDED else 80):
    x = torch.tensor([row["x"] for row in random.sample(records, 64)])
    loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not MENDED:
        gc.collect()
