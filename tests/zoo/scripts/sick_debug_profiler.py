"""The whole run under torch's profiler, stacks and shapes recorded, as it was left after a look at ten steps."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
with torch.profiler.profile(with_stack=True, record_shapes=True):
    for step in range(120):
        x = torch.randn(256, 64)
        loss = (net(x) - x[:, :1]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print("step", step, "loss", loss.item())
