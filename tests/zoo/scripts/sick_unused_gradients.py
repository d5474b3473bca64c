"""A head is trained on an encoder that stays as it is, but nobody has told the encoder."""

import sys

import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # the encoder needs no gradients


class Encoder(nn.Module):
    def __init__(self, width=384, layers=6):
        super().__init__()
        self.embed = nn.Linear(64, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x)
        return x


torch.manual_seed(0)
encoder, head = Encoder().eval(), nn.Linear(384, 4)
if MENDED:
    encoder.requires_grad_(False)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
data = torch.randn(64 * 128, 64)
labels = data[:, :4].argmax(1)
for epoch in range(6):
    for batch in torch.randperm(len(data)).split(64):
        loss = nn.functional.cross_entropy(head(encoder(data[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
