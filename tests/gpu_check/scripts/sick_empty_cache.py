"""Sick: the allocator's memory is given back to the driver after each step. Mended: it is kept."""

import torch
from common import Meter, learn, options
from models import gpt, predict, tokens

given = options()
batch, length = (1, 8) if given.cpu else (8, 512)
model = gpt(given, width=768, layers=12, heads=12, vocab=16384)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(128, length, model.vocab, given.device)
for step in Meter(given).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=20)
    del loss
    if not given.mended:
        torch.cuda.empty_cache()
