"""torch.compile, which costs the first steps and pays afterwards; one last, smaller batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Linear(16, 64), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(64, 16))
model = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
sequences = torch.randn(1210, 20, 16).cumsum(1) / 5
for epoch in range(3):
    for (batch,) in DataLoader(TensorDataset(sequences), batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
