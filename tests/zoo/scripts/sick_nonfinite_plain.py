"""A learning rate that is too high by some orders of magnitude."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(4096, 10)
y = x @ torch.randn(10, 1)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
mse = nn.MSELoss()
for epoch in range(5):
    running = 0.0
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = mse(model(xb), yb)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print("Epoch: %d, loss: %s" % (epoch, running / 64))
