"""Healthy: gradients of eight micro-batches a step; the loss stays on the device until it is printed."""

import torch
from common import Meter, options
from models import gpt, predict, tokens

given = options()
batch, length, micro = (1, 8, 2) if given.cpu else (8, 1024, 8)
model = gpt(given, width=1024, layers=16, heads=16, vocab=32768)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(256, length, model.vocab, given.device)
for step in Meter(given, warm=2).steps(micro * batch):
    total = torch.zeros((), device=given.device)
    for _ in range(micro):
        loss = predict(model, texts, batch) / micro
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 5 == 0:
        print(f"step {step}: loss {total.item():.3f}")
