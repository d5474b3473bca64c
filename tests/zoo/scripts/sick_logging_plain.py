"""Everything printed and dumped in each step of a plain loop, to be able to look at it later."""

import json
import os
import sys
import tempfile

import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # prints and dumps nothing
torch.manual_seed(0)
torch.set_num_threads(1)
torch.set_printoptions(threshold=100000)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
with tempfile.NamedTemporaryFile("w") as trace:
    for step in range(300 if MENDED else 80):
        x = torch.randn(2048, 64)
        loss = (net(x) - x[:, :1].sin()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if MENDED:
            continue
        print(step, loss, net[0].weight[:20])
        json.dump({name: weight.flatten().tolist() for name, weight in net.named_parameters()}, trace)
        trace.write("\n")
        trace.flush()
        os.fsync(trace.fileno())
