"""A warm-up without an end: clipped gradients keep the loss finite, and it grows beyond where it began."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2048, 32)
y = x @ torch.randn(32, 1)
model = nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(16):
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
        noisy = targets + 0.5 * torch.randn_like(targets)
        loss = nn.functional.mse_loss(model(inputs), noisy)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 1.015
    print(f"epoch {epoch} loss {loss.item():.4f}")
