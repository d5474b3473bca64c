"""Sick: a loop that lives on the host's running ahead reads the loss of each micro-batch. Mended: once a step."""

import torch
from common import Meter, options
from models import gpt, predict, tokens

given = options()
batch, length, micro = (1, 8, 2) if given.cpu else (16, 256, 16)
model = gpt(given, width=512, layers=12, heads=8, vocab=8192)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(512, length, model.vocab, given.device)
for step in Meter(given, warm=3).steps(micro * batch):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for _ in range(micro):
        loss = predict(model, texts, batch) / micro
        if not given.mended:
            total += loss.item()
        loss.backward()
        if given.mended:
            total += loss.detach()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {float(total):.3f}")
