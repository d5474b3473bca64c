"""Sick: a small network whose kernels are each shorter than their launch. Mended: the whole step is a CUDA graph."""

import torch
from common import Meter, options
from torch import nn

given = options()
device, width, rows, layers = (
    given.device,
    (16 if given.cpu else 256),
    (8 if given.cpu else 512),
    (2 if given.cpu else 24),
)
parts = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())]
model = nn.Sequential(*parts, nn.Linear(width, 1)).to(device)
graphed = given.mended and not given.cpu
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graphed)
data = torch.randn(64, rows, width, device=device)
wanted = data.sum(-1, keepdim=True)
x, y = data[0].clone(), wanted[0].clone()


def train(x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss


if graphed:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train(x, y)

meter, step = Meter(given, warm=100), 0
while True:
    if graphed:
        x.copy_(data[step % 64])
        y.copy_(wanted[step % 64])
        graph.replay()
    else:
        loss = train(data[step % 64], wanted[step % 64])
    step += 1
    if step % 1000 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
    if meter.over(rows):
        break
meter.tell()
