"""Sick: greedy decoding of one's own, one prompt after the other, before each step. Mended: all prompts together."""

import torch
from common import Meter, learn, options
from models import gpt

given = options()
prompts, new = (2, 3) if given.cpu else (16, 24)
model = gpt(given, width=512, layers=8, heads=8, vocab=4096, context=64)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)


@torch.no_grad()
def decode(ids):
    for _ in range(new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


for step in Meter(given, warm=2).steps(prompts):
    asked = torch.randint(model.vocab, (prompts, 8), device=given.device)
    model.eval()
    with torch.autocast(given.device, torch.bfloat16):
        said = decode(asked) if given.mended else torch.cat([decode(each) for each in asked.split(1)])
    model.train()
    weight = (said[:, 8:] % 2).float().mean()
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(said[:, :-1], said[:, 1:]) * weight
    learn(optimizer, loss)
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}, reward {weight.item():.3f}")
