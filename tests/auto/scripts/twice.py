"""The model runs a second time for a metric, in mixed precision that is asked for inside the model itself."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(x)


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
for _ in range(40):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).float(), y)
    loss.backward()
    optimizer.step()
    right = (model(x).argmax(1) == y).float().mean()
print(float(loss).hex())
