"""Sick: another program multiplies matrices on the same GPU. Mended: nobody does."""

import os
import subprocess
import sys
import threading

import torch
from common import Meter, options
from models import GPT, tokens

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
size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else dict(width=768, layers=12, heads=12)
batch, length = (1, 8) if given.cpu else (16, 512)
model = GPT(**size).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(128, length, model.vocab, given.device)
meter = Meter(given)
for step in range(10**9):
    rows = torch.randint(128, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows], targets[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
    if meter.over(batch):
        break
if beside is not None:
    beside.kill()
    beside.wait()
meter.tell()
