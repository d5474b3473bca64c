"""Each batch's activations are kept for a plot that nobody draws."""

import time

import torch
from torch import nn

torch.manual_seed(0)
sizes = [128, 1024, 2048, 1024]
layers = [layer for i, o in zip(sizes, sizes[1:]) for layer in (nn.Linear(i, o), nn.ReLU())]
net = nn.Sequential(*layers, nn.Linear(1024, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
activations = []
net[1].register_forward_hook(lambda module, inputs, output: activations.append(output.detach().clone()))
end, step = time.monotonic() + 75, 0
while time.monotonic() < end or step < 300:
    x = torch.randn(512, 128)
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 10, (512,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 100 == 0:
        print(f"[{step}] loss {loss.item():.3f}")
