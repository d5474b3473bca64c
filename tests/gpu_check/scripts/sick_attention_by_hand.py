"""Sick: attention written out over 2,048 tokens, its matrix of scores in memory. Mended: the fused function."""

import math

import torch
from common import Meter, learn, options
from models import fused_attention, gpt, predict, tokens

given = options()
length = 16 if given.cpu else 2048
mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=given.device), 1)


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, -1) @ v


batch = 1 if given.cpu else 4
model = gpt(
    given, width=768, layers=8, heads=12, context=length, attention=fused_attention if given.mended else attention
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(64, length, model.vocab, given.device)
for step in Meter(given).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=20)
