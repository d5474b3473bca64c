"""A run near its end: the learning rate goes to 0 by a cosine, the loss is flat but for its noise."""

import torch
from torch import nn

torch.manual_seed(0)
STEPS = 500
net = nn.Sequential(nn.Linear(32, 300), nn.SiLU(), nn.Linear(300, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for step in range(STEPS):
    x = torch.randn(512, 32)
    target = x[:, :1] + torch.randn(512, 1)  # noise that no model can predict
    loss = nn.functional.mse_loss(net(x), target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 25 == 0:
        print(f"step {step}/{STEPS} loss {loss.item():.5f} lr {scheduler.get_last_lr()[0]:.2e}")
