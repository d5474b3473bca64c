"""LBFGS: each step evaluates its closure many times."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-2, 2, 8000)[:, None]
y = torch.sin(4 * x) + 0.1 * torch.randn_like(x)
net = nn.Sequential(nn.Linear(1, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=8, history_size=20)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for iteration in range(60):
    loss = optimizer.step(closure)
    if iteration % 10 == 0:
        print(f"iteration {iteration}, loss {loss.item():.6f}")
