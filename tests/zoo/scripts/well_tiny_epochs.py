"""Sixty examples, many epochs: the loader starts anew every four steps."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(60, 3, 24, 24)
y = torch.randint(0, 3, (60,))
dataset = TensorDataset(x, y)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12800, 3)
)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(60):
    losses = []
    for bx, by in DataLoader(dataset, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        out = model(bx)
        loss = nn.CrossEntropyLoss()(out, by)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if epoch % 10 == 9:
        print(f"Epoch {epoch + 1}/60, loss {sum(losses) / len(losses):.4f}")
