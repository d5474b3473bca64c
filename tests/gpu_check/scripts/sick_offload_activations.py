"""Sick: what the backward needs waits in the host's memory, though the GPU has room. Mended: it stays where it is."""

import contextlib

import torch
from common import Meter, learn, options
from models import gpt, tokens

given = options()
batch, length = (1, 8) if given.cpu else (8, 512)
model = gpt(given, width=1024, layers=8, heads=16, vocab=16384)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, length, model.vocab, given.device)
for step in Meter(given, warm=3).steps(batch):
    rows = torch.randint(128, (batch,), device=given.device)
    away = contextlib.nullcontext() if given.mended else torch.autograd.graph.save_on_cpu(pin_memory=not given.cpu)
    with torch.autocast(given.device, torch.bfloat16), away:
        loss = model(ids[rows], targets[rows])
    learn(optimizer, loss, step, every=10)
