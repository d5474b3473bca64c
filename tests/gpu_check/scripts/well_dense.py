"""Healthy: large matrix products in bf16 that take the card to its power limit; the loss printed each 20th step."""

import torch
from common import Meter, learn, options
from torch import nn

given = options()
width, rows, layers = (32, 8, 2) if given.cpu else (8192, 8192, 6)
kind = torch.float32 if given.cpu else torch.bfloat16
model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)]).to(given.device, kind)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(rows, width, device=given.device, dtype=kind)
for step in Meter(given).steps(rows):
    loss = (model(batch) - batch).square().mean()
    learn(optimizer, loss, step, every=20)
