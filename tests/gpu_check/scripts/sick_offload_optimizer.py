"""Sick: the optimizer's state goes to the host after each step and comes back for the next. Mended: it stays."""

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=768, layers=12, heads=12, vocab=16384)
batch, length = (1, 8) if given.cpu else (8, 512)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
ids, targets = tokens(128, length, model.vocab, given.device)


def move(device):
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value) and value.dim():
                state[name] = value.to(device)


meter = Meter(given, warm=3)
for step in range(10**9):
    rows = torch.randint(128, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if not given.mended:
        move(given.device)
    optimizer.step()
    if not given.mended:
        move("cpu")
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    if meter.over(batch):
        break
meter.tell()
