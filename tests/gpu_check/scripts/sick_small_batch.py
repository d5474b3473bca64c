"""Sick: a GPT trained with one short text a step, which leaves the GPU all but empty. Mended: 64 of them."""

import torch
from common import Meter, learn, options
from models import gpt, predict, tokens

given = options()
batch, length = (64 if given.mended else 1), (8 if given.cpu else 256)
model = gpt(given, width=768, layers=12, heads=12)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(512, length, model.vocab, given.device)
for step in Meter(given).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=50)
