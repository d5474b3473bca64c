"""Cross-validation: five models in a row, each evaluated after its epochs, the loss printed to two places."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
X = torch.randn(4000, 32)
Y = (X[:, 0] * X[:, 1] > 0).long()
for fold in range(5):
    net = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    held_out = torch.arange(4000) % 5 == fold
    for epoch in range(3):
        for x, y in DataLoader(TensorDataset(X[~held_out], Y[~held_out]), 64, shuffle=True):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            right = (net(X[held_out]).argmax(1) == Y[held_out]).float().mean()
        net.train()
        print(f"fold {fold} epoch {epoch} loss {loss.item():.2f} acc {right:.3f}")
