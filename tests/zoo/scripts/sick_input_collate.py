"""Text that is tokenised again for each batch, in the collate function."""

import inspect
import re
import sys
import textwrap

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

MENDED = "mended" in sys.argv[1:]  # tokenizes each line once

torch.manual_seed(1)
lines = [line for line in inspect.getsource(textwrap).splitlines() if line.strip()] * 12
words = sorted(set(re.findall(r"\w+|\S", "\n".join(lines))))


def lookup(word):
    return words.index(word)  # a list, where a dictionary was meant


def collate(batch):
    return torch.stack([known[line] if MENDED else tokenized(line) for line in batch])


def tokenized(line):
    for _ in range(3):  # "normalization"
        line = re.sub(r"\s+", " ", line)
    row = [lookup(word) for word in re.findall(r"\w+|\S", line)][:24]
    return torch.tensor(row + [0] * (24 - len(row)))


known = {line: tokenized(line) for line in dict.fromkeys(lines)} if MENDED else {}

loader = DataLoader(lines, batch_size=32, shuffle=True, collate_fn=collate)
embed, head = nn.Embedding(len(words), 24), nn.Linear(24, len(words))
opt = torch.optim.AdamW([*embed.parameters(), *head.parameters()], lr=3e-3)
for epoch in range(12):
    total = 0.0
    for tokens in loader:
        logits = head(embed(tokens[:, :-1]))
        loss = F.cross_entropy(logits.reshape(-1, len(words)), tokens[:, 1:].reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
