"""Sick: the allocator's memory is given back to the driver after each step. Mended: it is kept."""

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=768, layers=12, heads=12, vocab=16384)
batch, length = (1, 8) if given.cpu else (8, 512)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, length, model.vocab, given.device)
meter = Meter(given)
for step in range(10**9):
    rows = torch.randint(128, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    del loss
    if not given.mended:
        torch.cuda.empty_cache()
    if meter.over(batch):
        break
meter.tell()
