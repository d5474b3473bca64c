"""`.to(device)` was forgotten: the model computes on the CPU beside a free GPU."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(*[nn.Conv2d(3 if i == 0 else 48, 48, 3, padding=1) for i in range(5)], nn.Flatten())
model.append(nn.Linear(48 * 32 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(60):
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.3f}")
