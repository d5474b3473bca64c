"""Sick: each step reads norms and histograms of all weights to the host and logs them. Mended: each hundredth."""

import json
import logging
import os
import tempfile

import torch
from common import Meter, learn, options
from models import gpt, predict, tokens

given = options()
batch, length = (1, 8) if given.cpu else (16, 256)
model = gpt(given, width=512, layers=8, heads=8, vocab=8192)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(128, length, model.vocab, given.device)
meter = Meter(given)
with tempfile.TemporaryDirectory() as directory:
    logging.basicConfig(filename=os.path.join(directory, "train.log"), level=logging.INFO)
    log = logging.getLogger("train")

    def write_down(step, loss):
        row = {"step": step, "loss": loss.item()}
        for name, parameter in model.named_parameters():
            row[f"norm/{name}"] = parameter.norm().item()
            row[f"gradient/{name}"] = parameter.grad.norm().item()
            row[f"histogram/{name}"] = torch.histc(parameter.detach(), 64).tolist()
        log.info(json.dumps(row))

    for step in range(10**9):
        loss = predict(model, texts, batch)
        learn(optimizer, loss)
        if not given.mended or step % 100 == 0:
            write_down(step, loss)
            print(f"step {step}: loss {loss.item():.3f}")
        if meter.over(batch):
            break
    logging.shutdown()
meter.tell()
