"""Usual steps, and one whose backward pass takes its time."""

import time

import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for number, batch in enumerate(DataLoader(torch.randn(24, 4), batch_size=2)):
    loss = model(batch).square().mean()
    if number == 9:
        loss.register_hook(lambda _: time.sleep(3.5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
