"""Sick: widths that no tensor core likes, 1,021 and a vocabulary of 50,257. Mended: the next multiples of 64."""

import torch
from common import Meter, learn, options
from torch import nn

given = options()
width, vocab = (1024, 50304) if given.mended else (1021, 50257)
inner, rows, layers = (4096 if given.mended else 4093), 8192, 12
if given.cpu:
    width, vocab, inner, rows, layers = (16, 64, 64, 8, 1) if given.mended else (13, 61, 53, 8, 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


model = nn.Sequential(nn.Embedding(vocab, width), *[Layer() for _ in range(layers)], nn.Linear(width, vocab))
model = model.to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for step in Meter(given, warm=3).steps(rows):
    ids = torch.randint(vocab, (rows,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(ids), (ids + 7) % vocab)
    learn(optimizer, loss, step, every=20)
