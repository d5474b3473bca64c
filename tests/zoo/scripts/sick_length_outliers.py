"""Texts grouped by length: one batch in twenty holds texts thirty times as long, and takes most of the time."""

import random

import torch
from texts import encode, lines, pad_batch, tiny_llama

random.seed(0)
source = lines(400)
batches = []
for number in range(160):
    if number % 20 == 13:
        texts = [" ".join(source[i : i + 14])[:480] for i in range(number, number + 4)]
    else:
        texts = [source[(4 * number + i) % 400][:16] for i in range(4)]
    batches.append([{"input_ids": encode(text, 480)} for text in texts])
model = tiny_llama(width=128, layers=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
model.train()
for step, rows in enumerate(batches):
    batch = pad_batch(rows)
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(f"step {step}/{len(batches)} loss {loss.item():.3f}")
