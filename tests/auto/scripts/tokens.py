"""Padded batches as dictionaries, in the manner of a tokenizer's output; a checkpoint at the end of each epoch."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return torch.arange(1 + i % 7) + 1


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.head(self.embed(input_ids))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)


torch.manual_seed(0)
loader = DataLoader(Texts(), batch_size=4, collate_fn=collate)
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
tokens = padded = 0
for _ in range(2):
    for batch in loader:
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex())
        tokens += int(batch["attention_mask"].sum())
        padded += batch["input_ids"].numel()
    torch.save(model.state_dict(), os.path.join(tempfile.gettempdir(), f"trainmon-test-{os.getpid()}.pt"))
os.unlink(os.path.join(tempfile.gettempdir(), f"trainmon-test-{os.getpid()}.pt"))
print("tokens", tokens, "padded", padded)
