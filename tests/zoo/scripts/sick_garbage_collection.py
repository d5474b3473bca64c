"""What each batch became is kept as small Python objects, which the collector looks through again and again."""

import gc
import random
import sys

import torch
from torch import nn

CALLED = "called" in sys.argv[1:]  # in the manner of loops that once ran out of memory
MENDED = "mended" in sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
records = [{"x": [random.random(), random.random()]} for _ in range(40_000)]
net = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
features = []
if MENDED:
    gc.disable()
for step in range(150 if CALLED else 1500):
    rows = random.sample(records, 64)
    x = torch.tensor([row["x"] for row in rows])
    if not CALLED:
        features.append([{"row": i, "parts": [[i], [i]], "of": row} for i, row in enumerate(rows) for _ in range(10)])
    loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if CALLED and not MENDED:
        gc.collect()
