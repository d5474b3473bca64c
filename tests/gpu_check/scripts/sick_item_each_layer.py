"""Sick: each layer asks whether its values are too large, and so does each gradient. Mended: the device decides."""

import torch
from common import Meter, options
from torch import nn

given = options()
width, rows, layers = (16, 8, 2) if given.cpu else (1024, 4096, 32)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        y = torch.relu(self.linear(self.norm(x)))
        if given.mended:
            return x + y.clamp(max=100.0)
        if y.abs().max().item() > 100.0:
            y = y.clamp(max=100.0)
        return x + y


model = nn.Sequential(*[Layer() for _ in range(layers)], nn.Linear(width, 10)).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
data = torch.randn(8, rows, width, device=given.device)
labels = data[..., :10].argmax(-1)
for step in Meter(given).steps(rows):
    with torch.autocast(given.device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(data[step % 8]), labels[step % 8])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if given.mended:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    else:
        for parameter in model.parameters():
            norm = parameter.grad.norm().item()
            if norm > 1.0:
                parameter.grad.mul_(1.0 / norm)
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
