"""Gradient accumulation: four batches a step, and an evaluation under no_grad."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 16), torch.randn(96, 1))
train, held_out = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=16)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
for _ in range(2):
    for i, (x, y) in enumerate(train):
        loss = (model(x) - y).square().mean() / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            print(loss.item().hex())
    with torch.no_grad():
        print(sum((model(x) - y).square().sum().item() for x, y in held_out).hex())
