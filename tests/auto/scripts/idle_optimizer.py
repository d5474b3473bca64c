"""Two optimizers of which one never steps; `loader` or `memory` as in gan.py."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
body, head = nn.Linear(4, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD(body.parameters(), lr=1e-3)
frozen = torch.optim.SGD(head.parameters(), lr=1e-3)
data = torch.randn(36, 4)
for x in DataLoader(data, batch_size=4) if sys.argv[1] == "loader" else data.split(4):
    loss = head(body(x)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
