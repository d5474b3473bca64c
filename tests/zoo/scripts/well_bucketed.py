"""Texts of quite different lengths, grouped by length so that little is padded."""

import random

import torch
from texts import line_dataset, pad_batch, tiny_llama
from torch.utils.data import DataLoader, Sampler


class ByLength(Sampler):
    def __init__(self, rows, size):
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


random.seed(0)
rows = line_dataset(900, most=120)
loader = DataLoader(rows, batch_sampler=ByLength(rows, 6), collate_fn=pad_batch)
model = tiny_llama(width=48)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model.train()
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 25 == 0:
        print(f"{step:>4}/{len(loader)} loss={loss.item():.3f} length={batch['input_ids'].shape[1]}")
