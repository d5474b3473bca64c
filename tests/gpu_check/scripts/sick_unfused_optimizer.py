"""Sick: AdamW goes through six hundred small tensors one by one. Mended: fused, a few kernels for all of them."""

import torch
from common import Meter, learn, options
from torch import nn

given = options()
width, rows, layers = (16, 8, 4) if given.cpu else (256, 1024, 300)
model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)], nn.Linear(width, 1)).to(given.device)
kind = dict(fused=True) if given.mended else dict(foreach=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **kind)
data = torch.randn(16, rows, width, device=given.device)
for step in Meter(given).steps(rows):
    loss = (model(data[step % 16]) - data[step % 16].mean(-1, keepdim=True)).square().mean()
    learn(optimizer, loss, step, every=50)
