"""In the manner of nanoGPT, with a get_batch that was written in a hurry: no loader tells that it is slow."""

import random
import sys

import torch
import torch.nn as nn
from torch.nn import functional as F

MENDED = "mended" in sys.argv[1:]  # encodes the text once, and cuts the sequences out of one tensor
batch_size, block_size, max_iters = 24, 32, 3000 if MENDED else 120
text = "the quick brown fox jumps over the lazy dog. " * 400
chars = sorted(set(text))
torch.manual_seed(1337)


def encode(s):
    return [chars.index(c) for c in s]


encoded = torch.tensor(encode(text)) if MENDED else None


def get_batch():
    if MENDED:
        starts = torch.randint(len(encoded) - block_size - 1, (batch_size, 1))
        windows = encoded[starts + torch.arange(block_size + 1)]
        return windows[:, :-1], windows[:, 1:]
    x, y = [], []
    for _ in range(batch_size):
        data = encode(text)  # all of it, each time
        i = random.randrange(len(data) - block_size - 1)
        x.append(data[i : i + block_size])
        y.append(data[i + 1 : i + 1 + block_size])
    return torch.tensor(x), torch.tensor(y)


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(len(chars), 64)
        self.lm_head = nn.Linear(64, len(chars))

    def forward(self, idx, targets=None):
        logits = self.lm_head(self.table(idx))
        return logits, F.cross_entropy(logits.view(-1, len(chars)), targets.reshape(-1))


model = Bigram()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(max_iters):
    xb, yb = get_batch()
    logits, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 30 == 0:
        print(f"iter {it}: loss {loss.item():.4f}")
