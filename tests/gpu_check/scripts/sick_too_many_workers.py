"""Sick: 64 loader workers on far fewer cores, each of which reads its index first. Mended: no more than cores."""

import os
import time

import torch
from common import Meter, learn, options
from torch import nn
from torch.utils.data import DataLoader, Dataset

given = options()
rows, width = (4, 16) if given.cpu else (64, 1024)
cores = len(os.sched_getaffinity(0))
workers = (1 if given.mended else 2) if given.cpu else (min(8, cores) if given.mended else 64)
WORK = 0.02 if given.cpu else 2.0


def index(_):
    """Two seconds of a core's work, whoever has the core meanwhile: a large index is read in each worker."""
    torch.set_num_threads(1)
    until = time.process_time() + WORK
    table = {}
    while time.process_time() < until:
        for number in range(1000):
            table[f"{number:012d}"] = number


class Rows(Dataset):
    def __len__(self):
        return 10**7

    def __getitem__(self, place):
        return torch.full((width,), float(place % 7))


if __name__ == "__main__":
    began = time.perf_counter()
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).to(given.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(Rows(), batch_size=rows, num_workers=workers, worker_init_fn=index, pin_memory=not given.cpu)
    meter, first = Meter(given), None
    for step, batch in enumerate(loader):
        first = first or time.perf_counter() - began
        batch = batch.to(given.device, non_blocking=True)
        loss = (model(batch) - batch).square().mean()
        learn(optimizer, loss, step, every=500)
        if meter.over(rows):
            break
    meter.tell(first_batch_after=first)
