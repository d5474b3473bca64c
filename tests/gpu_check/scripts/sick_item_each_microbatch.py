"""Sick: a loop that lives on the host's running ahead reads the loss of each micro-batch. Mended: once a step."""

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=512, layers=12, heads=8, vocab=8192)
batch, length, micro = (1, 8, 2) if given.cpu else (16, 256, 16)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(512, length, model.vocab, given.device)
meter = Meter(given, warm=3)
for step in range(10**9):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for _ in range(micro):
        rows = torch.randint(512, (batch,), device=given.device)
        with torch.autocast(given.device, torch.bfloat16):
            loss = model(ids[rows], targets[rows]) / micro
        if not given.mended:
            total += loss.item()
        loss.backward()
        if given.mended:
            total += loss.detach()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {float(total):.3f}")
    if meter.over(micro * batch):
        break
meter.tell()
