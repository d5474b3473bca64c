"""Healthy: in the manner of nanoGPT, eager or compiled, bf16, the loss read and printed with each step."""

import math
import time

import torch
from common import Meter, options
from models import gpt

given = options(compiled=False)
batch_size, block_size, warmup_iters, lr_decay_iters = (2, 8, 5, 100) if given.cpu else (16, 1024, 20, 1000)
torch.backends.cuda.matmul.allow_tf32 = True
model = gpt(given, width=768, layers=6 if given.compiled else 12, heads=12, context=block_size)
forward = torch.compile(model, backend="eager" if given.cpu else "inductor") if given.compiled else model
data = torch.randint(model.vocab, (1_000_000,))
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    if given.cpu:
        return x, y
    return x.pin_memory().to(given.device, non_blocking=True), y.pin_memory().to(given.device, non_blocking=True)


def learning_rate(step):
    if step < warmup_iters:
        return 6e-4 * (step + 1) / (warmup_iters + 1)
    ratio = min(1.0, (step - warmup_iters) / (lr_decay_iters - warmup_iters))
    return 6e-5 + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (6e-4 - 6e-5)


meter, before, step = Meter(given), time.time(), 0
X, Y = get_batch()
while True:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    with torch.autocast(given.device, torch.bfloat16):
        loss = forward(X, Y)
    X, Y = get_batch()  # the next batch, while the GPU is busy with this one
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    now = time.time()
    print(f"iter {step}: loss {loss.item():.4f}, time {(now - before) * 1000:.2f}ms")
    before, step = now, step + 1
    if meter.over(batch_size):
        break
meter.tell()
