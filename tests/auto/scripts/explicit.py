"""A program that tells its steps itself; an optimizer steps twice in each."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainhooks as th

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4)


def update(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


next(iter(loader))
for (x,) in th.steps(loader):
    update(x)
    with th.phase("training"):
        loss = update(x)
    print(loss.item().hex())
for _ in range(5):
    with th.step():
        print(update(x).item().hex())
