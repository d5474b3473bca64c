"""torch.save of model and optimizer after every step, on top of each other."""

import argparse
import os
import tempfile

import torch
from torch import nn, optim

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=240)
parser.add_argument("mended", nargs="?", help="given: nothing is saved")
parser.add_argument("--hidden", type=int, default=1200)
opts = parser.parse_args()
out = tempfile.mkdtemp()
path = os.path.join(out, "last.pt")
torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(64, opts.hidden), nn.ReLU(), nn.Linear(opts.hidden, opts.hidden), nn.Linear(opts.hidden, 1)
)
optimizer = optim.Adam(net.parameters(), lr=1e-4)


def save_checkpoint(i):
    torch.save({"iter": i, "net": net.state_dict(), "optim": optimizer.state_dict()}, path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


for i in range(opts.iters):
    x = torch.randn(64, 64)
    loss = nn.functional.smooth_l1_loss(net(x), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not opts.mended:
        save_checkpoint(i)
    if not i % 10:
        print(f"{i}/{opts.iters} {loss.item():.5f}")
if not opts.mended:
    os.remove(path)
os.rmdir(out)
