"""Sick: what the backward needs waits in the host's memory, though the GPU has room. Mended: it stays where it is."""

import contextlib

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=1024, layers=8, heads=16, vocab=16384)
batch, length = (1, 8) if given.cpu else (8, 512)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, length, model.vocab, given.device)
meter = Meter(given, warm=3)
for step in range(10**9):
    rows = torch.randint(128, (batch,), device=given.device)
    away = contextlib.nullcontext() if given.mended else torch.autograd.graph.save_on_cpu(pin_memory=not given.cpu)
    with torch.autocast(given.device, torch.bfloat16), away:
        loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    if meter.over(batch):
        break
meter.tell()
