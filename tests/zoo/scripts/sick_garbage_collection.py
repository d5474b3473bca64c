"""A data set of a million small objects, which Python's collector looks through again and again."""

import gc
import random
import sys

import torch
from torch import nn

if "called" in sys.argv[1:]:  # in the manner of loops that once ran out of memory
    records, collect = [{"x": [random.random()] * 2} for _ in range(200_000)], gc.collect
else:
    records, collect = [{"x": [random.random(), random.random()], "tags": [[]]} for _ in range(600_000)], lambda: None
if "mended" in sys.argv[1:]:
    gc.freeze()
    collect = lambda: None  # noqa: E731
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
kept = []
for step in range(600):
    rows = random.sample(records, 256)
    x = torch.tensor([row["x"] for row in rows])
    # What each sample became is kept, as a cache of features would.
    kept.append([{"row": i, "parts": [[i], [i]], "of": row} for i, row in enumerate(rows) for _ in range(4)])
    loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    collect()
