"""Sick: attention written out over 2,048 tokens, its matrix of scores in memory. Mended: the fused function."""

import math

import torch
from common import Meter, options
from models import GPT, fused_attention, tokens

given = options()
length = 16 if given.cpu else 2048
mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=given.device), 1)


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, -1) @ v


size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=768, layers=8, heads=12)
batch = 1 if given.cpu else 4
model = GPT(**size, context=length, attention=fused_attention if given.mended else attention).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(64, length, model.vocab, given.device)
meter = Meter(given)
for step in range(10**9):
    rows = torch.randint(64, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    if meter.over(batch):
        break
meter.tell()
