"""Sick: CUDA_LAUNCH_BLOCKING left on, so that each kernel is waited for. Mended: without."""

import os
import sys

if "--mended" not in sys.argv:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"

import torch
from common import Meter, learn, options
from models import gpt, predict, tokens

given = options()
batch, length = (1, 8) if given.cpu else (16, 256)
model = gpt(given, width=512, layers=12, heads=8, vocab=8192)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(128, length, model.vocab, given.device)
for step in Meter(given).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=50)
