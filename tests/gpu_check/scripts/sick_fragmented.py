"""Sick: texts of all lengths on a GPU with little room to spare: freed pieces fit nowhere, and the allocator starts
over and over. Mended: a few lengths only."""

import random

import torch
from common import Meter, learn, options
from models import gpt, tokens

given = options()
batch, longest = (1, 64) if given.cpu else (8, 1024)
model = gpt(given, width=1024, layers=8, heads=16, vocab=16384, context=longest)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, longest, model.vocab, given.device)
shuffled = random.Random(0)


def train(length):
    rows = torch.randint(128, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows, :length], targets[rows, :length])
    learn(optimizer, loss)
    return loss.detach()


for _ in range(2):
    train(longest)  # the longest first, to see that it fits
if not given.cpu:  # the GPU's other tenants leave this much
    share = 1.12 * torch.cuda.max_memory_allocated() / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, share))
meter, lost = Meter(given), 0
for step in range(10**9):
    length = shuffled.randint(longest // 4, longest)
    if given.mended:
        length = -(-length // (longest // 4)) * (longest // 4)
    try:
        loss = train(length)
    except torch.OutOfMemoryError:
        optimizer.zero_grad(set_to_none=True)
        lost += 1
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}, {lost} batches left out")
    if meter.over(batch):
        break
retries = None if given.cpu else torch.cuda.memory_stats()["num_alloc_retries"]
meter.tell(retries=retries, lost=lost)
