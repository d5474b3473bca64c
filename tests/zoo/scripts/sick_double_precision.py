"""Data from NumPy met a model in float32, and the model was converted."""

import sys

import numpy as np
import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # the data was converted
torch.manual_seed(0)
torch.set_num_threads(1)
data = np.random.default_rng(0).normal(size=(4096, 512))
net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
if not MENDED:
    net = net.double()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
for step in range(150):
    rows = np.random.randint(0, len(data), 256)
    x = torch.from_numpy(data[rows])
    x = x.float() if MENDED else x
    loss = (net(x).squeeze(1) - x[:, 0].sin()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
