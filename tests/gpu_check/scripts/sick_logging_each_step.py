"""Sick: each step reads norms and histograms of all weights to the host and logs them. Mended: each hundredth."""

import json
import logging
import os
import tempfile

import torch
from common import Meter, options
from models import GPT, tokens

given = options()
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=512, layers=8, heads=8, vocab=8192)
batch, length = (1, 8) if given.cpu else (16, 256)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, length, model.vocab, given.device)
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
        rows = torch.randint(128, (batch,), device=given.device)
        with torch.autocast(given.device, torch.bfloat16):
            loss = model(ids[rows], targets[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not given.mended or step % 100 == 0:
            write_down(step, loss)
            print(f"step {step}: loss {loss.item():.3f}")
        if meter.over(batch):
            break
    logging.shutdown()
meter.tell()
