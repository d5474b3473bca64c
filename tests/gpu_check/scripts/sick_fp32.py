"""Sick: a GPT in fp32, its matrix products without tensor cores. Mended: TF32 is allowed."""

import torch
from common import Meter, learn, options
from models import gpt, tokens

given = options()
if given.mended:
    torch.set_float32_matmul_precision("high")
batch, length = (2, 8) if given.cpu else (16, 512)
model = gpt(given, width=1024, layers=12, heads=16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(256, length, model.vocab, given.device)
for step in Meter(given, warm=3).steps(batch):
    rows = torch.randint(256, (batch,), device=given.device)
    loss = model(ids[rows], targets[rows])
    learn(optimizer, loss, step, every=10)
