"""Shards on a file system that answers late; one worker fetches them sample by sample."""

import os
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

# Seconds a read, as a loaded network file system takes; mended: a local disk.
MENDED = "mended" in sys.argv[1:]
LATENCY = 0.0 if MENDED else 0.004


def read_remote(path, offset, size):
    if LATENCY:
        time.sleep(LATENCY)
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


class Shards(IterableDataset):
    def __init__(self, paths, width):
        self.paths, self.width = paths, width

    def __iter__(self):
        for path in self.paths:
            size = 4 * self.width
            for offset in range(0, os.path.getsize(path), size):
                row = np.frombuffer(read_remote(path, offset, size), dtype=np.float32)
                yield torch.from_numpy(row.copy())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        rng = np.random.default_rng(0)
        paths = [os.path.join(directory, f"shard-{i}.bin") for i in range(16 if MENDED else 6)]
        for path in paths:
            rng.standard_normal((300, 64), dtype=np.float32).tofile(path)
        autoencoder = nn.Sequential(
            nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 64)
        )
        optimizer = torch.optim.Adam(autoencoder.parameters(), 1e-3)
        loader = DataLoader(Shards(paths, 64), batch_size=12, num_workers=1)
        start = time.time()
        for step, rows in enumerate(loader, 1):
            loss = (autoencoder(rows) - rows).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                print(f"step {step} | loss {loss.item():.4f} | {step / (time.time() - start):.1f} it/s", flush=True)
