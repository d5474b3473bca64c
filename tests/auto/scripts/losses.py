"""Prints the mean loss of each step's batches, as the program computed them. The way it trains is the word given."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

way = sys.argv[1]
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=way == "scaler")
loader = DataLoader(TensorDataset(torch.randn(88, 8), torch.randn(88, 1)), batch_size=4)
EVERY = 1 if way == "scaler" else 4
losses, printed = [], []
for number, (x, y) in enumerate(loader, 1):
    loss = nn.functional.mse_loss(model(x), y)
    losses.append(loss.item())
    if way == "two":
        loss.backward(retain_graph=True)
        (2 * loss).backward()
    else:
        ways = {"divided": loss / EVERY, "multiplied": loss * (1 / EVERY), "accelerate": loss / EVERY / 1}
        scaler.scale(ways.get(way, loss)).backward()
    if number % EVERY == 0 or number == len(loader):
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        printed.append(sum(losses) / len(losses))
        losses.clear()
print(*printed)
