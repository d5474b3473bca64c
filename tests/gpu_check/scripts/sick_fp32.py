"""Sick: a GPT in fp32, its matrix products without tensor cores. Mended: TF32 is allowed."""

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
if given.mended:
    torch.set_float32_matmul_precision("high")
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=1024, layers=12, heads=16)
batch, length = (2, 8) if given.cpu else (16, 512)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(256, length, model.vocab, given.device)
meter = Meter(given, warm=3)
for step in range(10**9):
    rows = torch.randint(256, (batch,), device=given.device)
    loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    if meter.over(batch):
        break
meter.tell()
