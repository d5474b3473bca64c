"""Sick: greedy decoding of one's own, one prompt after the other, before each step. Mended: all prompts together."""

import torch
from common import Meter, options
from models import GPT

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=512, layers=8, heads=8, vocab=4096)
prompts, new = (2, 3) if given.cpu else (16, 24)
model = GPT(**size, context=64).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)


@torch.no_grad()
def decode(ids):
    for _ in range(new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


meter = Meter(given, warm=2)
for step in range(10**9):
    asked = torch.randint(model.vocab, (prompts, 8), device=given.device)
    model.eval()
    with torch.autocast(given.device, torch.bfloat16):
        said = decode(asked) if given.mended else torch.cat([decode(each) for each in asked.split(1)])
    model.train()
    weight = (said[:, 8:] % 2).float().mean()
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(said[:, :-1], said[:, 1:]) * weight
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}, reward {weight.item():.3f}")
    if meter.over(prompts):
        break
meter.tell()
