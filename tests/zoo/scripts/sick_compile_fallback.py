"""A Python number that changes each step is compiled into the graph, until torch gives up."""

import torch
from torch import nn


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.iteration = 0

    def forward(self, x):
        factor = 1.0 / (1 + self.iteration)
        for layer in self.layers:
            x = torch.relu(layer(x)) * factor
        return x


torch.manual_seed(0)
net = Annealed()
fast = torch.compile(net, backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for i in range(150):
    net.iteration = i
    out = fast(torch.randn(128, 64))
    loss = (out - 1).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 25 == 0:
        print("iteration", i, "loss", loss.item())
