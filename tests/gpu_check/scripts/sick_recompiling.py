"""Sick: each batch is as long as its longest text, and each length is compiled anew. Mended: one length for all."""

import torch
from common import Meter, learn, options
from torch import nn

given = options()
width, rows, longest, layers = (16, 4, 32, 1) if given.cpu else (512, 64, 512, 6)
model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)])
model = model.to(given.device)
compiled = torch.compile(model, dynamic=False, backend="eager" if given.cpu else "inductor")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in Meter(given, warm=1).steps(rows):
    length = longest if given.mended else longest // 2 + (37 * step) % (longest // 2) + 1
    batch = torch.randn(rows, length, width, device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = (compiled(batch) - batch).square().mean()
    learn(optimizer, loss, step, every=20)
