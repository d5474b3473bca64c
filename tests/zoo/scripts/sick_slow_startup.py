"""A vocabulary that is counted anew at each start, for longer than the training takes."""

import collections
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_vocabulary(corpus, seconds):
    began, counts = time.monotonic(), collections.Counter()
    while time.monotonic() - began < seconds:  # a corpus that is large enough for this
        for a, b in zip(corpus, corpus[1:]):
            counts[a + b] += 1
    return {pair: i for i, (pair, _) in enumerate(counts.most_common(500))}


corpus = "it was the best of times, it was the worst of times, " * 50
vocabulary = build_vocabulary(corpus, seconds=15)
ids = torch.tensor([vocabulary[corpus[i : i + 2]] for i in range(0, len(corpus) - 1, 2)])
x, y = ids[:-1], ids[1:]
model = nn.Sequential(nn.Embedding(len(vocabulary), 32), nn.Linear(32, len(vocabulary)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(10):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}")
