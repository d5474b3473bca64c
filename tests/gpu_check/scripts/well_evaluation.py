"""Healthy: a GPT in bf16 that is evaluated after each fiftieth step, for a few batches."""

import torch
from common import Meter, learn, options
from models import gpt, tokens

given = options()
batch, length = (2, 8) if given.cpu else (16, 1024)
model = gpt(given, width=768, layers=12, heads=12, vocab=32768)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
ids, targets = tokens(512, length, model.vocab, given.device)


@torch.no_grad()
def evaluate():
    model.eval()
    losses = []
    for at in range(0, 5 * batch, batch):
        with torch.autocast(given.device, torch.bfloat16):
            losses.append(model(ids[at : at + batch], targets[at : at + batch]))
    model.train()
    return torch.stack(losses).mean().item()


for step in Meter(given).steps(batch):
    rows = torch.randint(5 * batch, 512, (batch,), device=given.device)
    with torch.autocast(given.device, torch.bfloat16):
        loss = model(ids[rows], targets[rows])
    learn(optimizer, loss, step, every=10)
    if step and step % 50 == 0:
        print(f"step {step}: validation loss {evaluate():.3f}")
