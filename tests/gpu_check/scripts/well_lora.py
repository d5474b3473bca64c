"""Healthy: a frozen GPT in bf16 of which only low-rank additions are trained."""

import torch
from common import Meter, learn, options
from models import GPT, predict, tokens
from torch import nn

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=2048, layers=16, heads=16, vocab=32768)
batch, length, rank = (1, 8, 2) if given.cpu else (8, 1024, 16)


class LowRank(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + 2.0 * self.up(self.down(x))


model = GPT(**size).to(torch.bfloat16).requires_grad_(False)
for block in model.blocks:
    block.qkv, block.proj = LowRank(block.qkv), LowRank(block.proj)
model = model.to(given.device)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=True)
texts = tokens(128, length, model.vocab, given.device)
for step in Meter(given, warm=3).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=10)
