"""Four micro-batches a step, with clipping and a warm-up of the learning rate."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4
torch.manual_seed(0)
ids = torch.randint(0, 200, (3200, 24))
model = nn.Sequential(nn.Embedding(200, 64), nn.Flatten(), nn.Linear(24 * 64, 256), nn.ReLU(), nn.Linear(256, 200))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
loader = DataLoader(TensorDataset(ids), batch_size=16, shuffle=True)
for epoch in range(2):
    for i, (batch,) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(batch), batch[:, -1]) / ACCUMULATE
        loss.backward()
        if (i + 1) % ACCUMULATE == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {ACCUMULATE * loss.item():.4f}")
