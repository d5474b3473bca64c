"""A recommender whose batches use few rows of a large table; its gradient is dense, so Adam updates all of it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
ITEMS, WIDTH = 120_000, 48
model = nn.Sequential(nn.EmbeddingBag(ITEMS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
baskets = torch.randint(ITEMS, (2048, 10))
bought = (baskets[:, 0] % 2).long()
for epoch in range(2):
    for items, labels in DataLoader(TensorDataset(baskets, bought), batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(items), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
