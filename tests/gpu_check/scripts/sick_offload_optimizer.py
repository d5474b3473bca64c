"""Sick: the optimizer's state goes to the host after each step and comes back for the next. Mended: it stays."""

import torch
from common import Meter, options
from models import gpt, predict, tokens

given = options()
batch, length = (1, 8) if given.cpu else (8, 512)
model = gpt(given, width=768, layers=12, heads=12, vocab=16384)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
texts = tokens(128, length, model.vocab, given.device)


def move(device):
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value) and value.dim():
                state[name] = value.to(device)


for step in Meter(given, warm=3).steps(batch):
    loss = predict(model, texts, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if not given.mended:
        move(given.device)
    optimizer.step()
    if not given.mended:
        move("cpu")
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
