"""Eight compute threads a core, copied from a larger machine's settings."""

import os
import time

import torch
from torch import nn

torch.set_num_threads(8 * (os.cpu_count() or 2))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
end = time.monotonic() + 40
step = 0
while time.monotonic() < end:
    x = torch.randn(512, 256)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.5f}")
