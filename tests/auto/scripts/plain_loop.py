"""A plain loop over a DataLoader, with an evaluation after each epoch."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

workers = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 16), torch.randint(0, 4, (96,)))
train = DataLoader(data, batch_size=16, shuffle=True, num_workers=workers)
held_out = DataLoader(data, batch_size=32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in held_out)  # no torch.no_grad: many forget it
    print(epoch, right)
