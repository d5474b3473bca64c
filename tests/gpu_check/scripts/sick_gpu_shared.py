"""Sick: another program multiplies matrices on the same GPU. Mended: nobody does."""

import os
import subprocess
import sys
import threading

import torch
from common import Meter, learn, options
from models import gpt, predict, tokens

given = options(neighbor=False)


def neighbor():
    """Works until whoever has started it is gone: then its input ends."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    side = 64 if given.cpu else 8192
    a = torch.randn(side, side, device=given.device, dtype=torch.bfloat16)
    print("at work", flush=True)
    while True:
        for _ in range(10):
            a @ a
        if not given.cpu:
            torch.cuda.synchronize()


if given.neighbor:
    neighbor()
beside = None
if not given.mended:
    command = [sys.executable, __file__, "--neighbor", "--device", given.device]
    beside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    beside.stdout.readline()
batch, length = (1, 8) if given.cpu else (16, 512)
model = gpt(given, width=768, layers=12, heads=12)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
texts = tokens(128, length, model.vocab, given.device)
for step in Meter(given).steps(batch):
    loss = predict(model, texts, batch)
    learn(optimizer, loss, step, every=20)
if beside is not None:
    beside.kill()
    beside.wait()
