"""The whole validation set after every fifth step."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

MENDED = "mended" in sys.argv[1:]  # does not validate
torch.manual_seed(0)
points = torch.rand(6000, 24)
labels = (points[:, 0] * 3).long() + 3 * (points[:, 1] > 0.5)
training_set, validation_set = random_split(TensorDataset(points, labels), [2400, 3600])
train_dl = DataLoader(training_set, batch_size=32, shuffle=True)
valid_dl = DataLoader(validation_set, batch_size=64)
model = nn.Sequential(nn.Linear(24, 400), nn.GELU(), nn.Linear(400, 400), nn.GELU(), nn.Linear(400, 6))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


def validate():
    model.eval()
    hits = n = 0
    with torch.inference_mode():
        for xb, yb in valid_dl:
            hits += (model(xb).argmax(-1) == yb).sum().item()
            n += len(yb)
    model.train()
    return hits / n


step = 0
for epoch in range(16 if MENDED else 5):
    for xb, yb in train_dl:
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        opt.zero_grad()
        step += 1
        if step % 5 == 0 and not MENDED:
            print(f"step={step} loss={loss.item():.4f} val_acc={validate():.3f}")
