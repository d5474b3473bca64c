"""A prefetching thread dies without a word, and the training waits for its queue for ever."""

import queue
import threading

import torch
from torch import nn

batches = queue.Queue(maxsize=8)


def prefetch():
    for i in range(60):
        batches.put(torch.randn(64, 32))
    raise SystemExit  # the last shard is missing


class Prefetched:
    def __iter__(self):
        while True:
            yield batches.get()


threading.Thread(target=prefetch, daemon=True).start()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))
optimizer = torch.optim.Adam(model.parameters())
for step, batch in enumerate(Prefetched()):
    loss = nn.functional.mse_loss(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
