"""Healthy: gradients of eight micro-batches a step; the loss stays on the device until it is printed."""

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=1024, layers=16, heads=16, vocab=32768)
batch, length, micro = (1, 8, 2) if given.cpu else (8, 1024, 8)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(256, length, model.vocab, given.device)
meter = Meter(given, warm=2)
for step in range(10**9):
    total = torch.zeros((), device=given.device)
    for _ in range(micro):
        rows = torch.randint(256, (batch,), device=given.device)
        with torch.autocast(given.device, torch.bfloat16):
            loss = model(ids[rows], targets[rows]) / micro
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 5 == 0:
        print(f"step {step}: loss {total.item():.3f}")
    if meter.over(micro * batch):
        break
meter.tell()
