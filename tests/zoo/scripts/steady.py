"""A plain training of about so many seconds, healthy in itself: what surrounds it makes the case."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seconds = float(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(20000, 32)
loader = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=128, shuffle=True)
model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
began, step = time.monotonic(), 0
while time.monotonic() - began < seconds:
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.monotonic() - began > seconds:
            break
