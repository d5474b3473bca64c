"""A look at all validation points after every second step, by a function that forgets to call eval()."""

import sys

import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # does not look
torch.manual_seed(0)
torch.set_num_threads(1)
X = torch.randn(6000, 32)
Y = X[:, :1] * X[:, 1:2]
net = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


def evaluate():
    total = 0.0
    with torch.no_grad():
        for i in range(1000, 6000, 50):
            total += (net(X[i : i + 50]) - Y[i : i + 50]).pow(2).sum().item()
    return total / 5000


for step in range(1200 if MENDED else 400):
    chosen = torch.randint(0, 1000, (64,))
    loss = (net(X[chosen]) - Y[chosen]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 2 == 0 and not MENDED:
        print("step", step, "train", round(loss.item(), 4), "val", round(evaluate(), 4))
