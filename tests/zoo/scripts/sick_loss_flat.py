"""The head was replaced after the optimizer was made, and the rest is frozen: nothing that counts is trained."""

import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
head = nn.Linear(128, 3)
optimizer = torch.optim.Adam(list(backbone.parameters()) + list(head.parameters()), lr=1e-3)
model = nn.Sequential(backbone, nn.Linear(128, 3))  # the new head
for parameter in backbone.parameters():
    parameter.requires_grad_(False)
x = torch.randn(64, 16)
y = (x[:, 0] > 0).long()
for step in range(200):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.6f}")
