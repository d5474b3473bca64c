"""Updates by hand with torch.autograd.grad: no optimizer at all."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
w = torch.zeros(4, 1, requires_grad=True)
data = torch.randn(48, 4)
for _ in range(2):
    for x in DataLoader(data, batch_size=4):
        loss = (x @ w - x.sum(1, keepdim=True)).square().mean()
        (gradient,) = torch.autograd.grad(loss, [w])
        with torch.no_grad():
            w -= 0.1 * gradient
        print(loss.item().hex())
