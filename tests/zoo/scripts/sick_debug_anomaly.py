"""Anomaly detection, left on since last week's NaN."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)
torch.manual_seed(0)
frames = torch.randn(1024, 30, 12)
model = nn.GRU(12, 48, batch_first=True)
readout = nn.Linear(48, 12)
parameters = [*model.parameters(), *readout.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
for epoch in range(3):
    for (batch,) in DataLoader(TensorDataset(frames), batch_size=32, shuffle=True):
        states, _ = model(batch[:, :-1])
        loss = nn.functional.mse_loss(readout(states), batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    print(epoch, float(loss))
