"""A deep model compiled as a whole for a short run: compiling takes a good part of it."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


net = nn.Sequential(*[Block(48) for _ in range(48)], nn.Linear(48, 10))
net = torch.compile(net, backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(60):
    x = torch.randn(64, 48)
    y = x[:, :10].argmax(1)
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    if i % 10 == 0:
        print(i, round(loss.item(), 4))
