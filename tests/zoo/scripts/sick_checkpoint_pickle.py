"""The weights kept by pickle and numpy, not by torch, after each step: the last ones, the best ones, and a history."""

import os
import pickle
import shutil
import sys
import tempfile

import numpy as np
import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # saves nothing
torch.manual_seed(0)
folder = tempfile.mkdtemp()
net = nn.Sequential(nn.Linear(256, 1400), nn.ReLU(), nn.Linear(1400, 1400), nn.ReLU(), nn.Linear(1400, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
best = float("inf")


def save_weights(name):
    weights = {key: value.numpy() for key, value in net.state_dict().items()}
    with open(os.path.join(folder, name + ".pkl"), "wb") as file:
        pickle.dump(weights, file)
        file.flush()
        os.fsync(file.fileno())
    np.savez(os.path.join(folder, name + ".npz"), **weights)


for step in range(250 if MENDED else 100):
    x = torch.randn(128, 256)
    loss = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if MENDED:
        continue
    save_weights("last")
    save_weights(f"step_{step % 3}")
    if loss.item() < best:
        best = loss.item()
        save_weights("best")
    if step % 20 == 0:
        print("step", step, "loss", loss.item())
shutil.rmtree(folder)
