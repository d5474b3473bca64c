"""A student that learns from a larger teacher: the teacher's forward pass asks for no gradients."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(64, 800), nn.ReLU(), nn.Linear(800, 20)).eval()
student = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 20))
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
divergence = nn.KLDivLoss(reduction="batchmean")
data = torch.randn(12000, 64)
for epoch in range(3):
    student.train()
    for (x,) in DataLoader(TensorDataset(data), batch_size=64, shuffle=True):
        with torch.no_grad():
            wanted = torch.softmax(teacher(x) / 2, -1)
        loss = divergence(torch.log_softmax(student(x) / 2, -1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} kl {loss.item():.5f}")
