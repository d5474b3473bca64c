"""Tokens of a model that was compiled after its optimizer was made, as nanoGPT does with --compile."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = torch.compile(model, backend="aot_eager")
for _ in range(24):
    x = torch.randint(0, 50, (4, 16))
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
