"""A program that tells its phases itself; a few steps have nothing to do, and say so."""

import random

import torch
from torch import nn

import trainhooks as th

random.seed(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def batches(count):
    for _ in range(count):
        yield torch.randn(random.choice([64, 128, 256]), 64)


th.init(name="explicit", total_steps=250, config={"lr": 1e-3})
for batch in th.steps(batches(250)):
    if random.random() < 0.012:
        th.skip("nothing in this shard")
        continue
    with th.phase("forward"):
        loss = nn.functional.mse_loss(model(batch), batch.flip(1))
    with th.phase("backward"):
        loss.backward()
    with th.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    th.count(samples=len(batch), tokens=batch.numel())
    th.log(loss=loss)
with th.span("checkpoint"):
    torch.save(model.state_dict(), "/dev/null")
