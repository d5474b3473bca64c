"""Sick: deterministic algorithms left on in a graph network, whose sums over edges pay most. Mended: off."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from common import Meter, learn, options
from torch import nn

given = options()
if not given.mended:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = given.mended
torch.set_float32_matmul_precision("high")
nodes, edges, width, layers = (32, 64, 8, 2) if given.cpu else (100_000, 1_000_000, 128, 4)
source, target = torch.randint(nodes, (2, edges), device=given.device)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.sent = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        heard = torch.zeros_like(x).index_add_(0, target, self.sent(x).index_select(0, source))
        return torch.relu(self.own(x) + heard / 10)


model = nn.Sequential(*[Layer() for _ in range(layers)], nn.Linear(width, 10)).to(given.device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
x, labels = torch.randn(nodes, width, device=given.device), torch.randint(10, (nodes,), device=given.device)
for step in Meter(given, warm=3).steps(nodes):
    loss = nn.functional.cross_entropy(model(x), labels)
    learn(optimizer, loss, step, every=20)
