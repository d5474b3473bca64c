"""Healthy: the whole step is one CUDA graph, replayed for each batch."""

import torch
from common import Meter, options
from torch import nn

given = options()
width, rows, layers = (16, 8, 2) if given.cpu else (1024, 4096, 16)
parts = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU())]
model = nn.Sequential(*parts, nn.Linear(width, 8)).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=not given.cpu)
data = torch.randn(32, rows, width, device=given.device)
wanted = data[..., :8].tanh()
x, y = data[0].clone(), wanted[0].clone()


def train():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(given.device, torch.bfloat16, cache_enabled=False):
        loss = (model(x).float() - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss


if given.cpu:
    loss = train()
else:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train()

for step in Meter(given, warm=20).steps(rows):
    x.copy_(data[step % 32])
    y.copy_(wanted[step % 32])
    if given.cpu:
        loss = train()
    else:
        graph.replay()
    if step % 200 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
