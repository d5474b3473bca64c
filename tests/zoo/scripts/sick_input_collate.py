"""Text that is tokenised again for each batch, in the collate function."""

import inspect
import re
import textwrap

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(1)
lines = [line for line in inspect.getsource(textwrap).splitlines() if line.strip()] * 12
words = sorted(set(re.findall(r"\w+|\S", "\n".join(lines))))


def lookup(word):
    return words.index(word)  # a list, where a dictionary was meant


def collate(batch):
    ids = []
    for line in batch:
        for _ in range(3):  # "normalization"
            line = re.sub(r"\s+", " ", line)
        row = [lookup(word) for word in re.findall(r"\w+|\S", line)][:24]
        ids.append(torch.tensor(row + [0] * (24 - len(row))))
    return torch.stack(ids)


loader = DataLoader(lines, batch_size=32, shuffle=True, collate_fn=collate)
embed, head = nn.Embedding(len(words), 24), nn.Linear(24, len(words))
opt = torch.optim.AdamW([*embed.parameters(), *head.parameters()], lr=3e-3)
for epoch in range(8):
    total = 0.0
    for tokens in loader:
        logits = head(embed(tokens[:, :-1]))
        loss = F.cross_entropy(logits.reshape(-1, len(words)), tokens[:, 1:].reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
