"""Sequences that become longer by plan: steps become slower because they do more."""

import torch
from texts import block_dataset, pad_batch, tiny_llama

model = tiny_llama(width=48)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rows = block_dataset(900, 96)
for step in range(200):
    length = 24 if step < 80 else 48 if step < 140 else 96
    chosen = [{"input_ids": row["input_ids"][:length]} for row in rows[4 * step : 4 * step + 4]]
    loss = model(**pad_batch(chosen)).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} length {length} loss {loss.item():.4f}")
