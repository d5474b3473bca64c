"""torch.compile over batches of ever different lengths, with dynamic shapes turned off."""

import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
torch._dynamo.config.recompile_limit = 64


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.mix = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 7)

    def forward(self, ids):
        return self.out(self.mix(self.embed(ids)))


model = Tagger()
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(80):
    ids = torch.randint(0, 100, (8, random.randrange(8, 40)))
    loss = nn.functional.cross_entropy(compiled(ids).flatten(0, 1), (ids % 7).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: {loss.item():.4f}")
