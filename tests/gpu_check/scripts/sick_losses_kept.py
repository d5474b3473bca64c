"""Sick: losses are kept in a list with all that their backward would need. Mended: detached."""

import torch
from common import Meter, learn, options
from torch import nn

given = options()
width, rows, layers = (16, 8, 2) if given.cpu else (2048, 8192, 8)
model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)], nn.Linear(width, 1))
model = model.to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
data = torch.randn(4, rows, width, device=given.device)
room = 2**40 if given.cpu else 0.7 * torch.cuda.get_device_properties(0).total_memory
history = []
meter = Meter(given)
for step in range(10**9):
    with torch.autocast(given.device, torch.bfloat16):
        made = model(data[step % 4])
        loss = (made.float() - data[step % 4].mean(-1, keepdim=True)).square().mean()
        # A look at how the outputs spread: its graph holds a first layer's activations, and nothing frees them.
        spread = model[0](data[step % 4][: rows // 8]).float().std()
    learn(optimizer, loss)
    history.append(spread.detach() if given.mended else spread)
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}, spread {history[-1].item():.3f}")
    if meter.over(rows) or (not given.cpu and torch.cuda.memory_allocated() > room):
        break
meter.tell()
