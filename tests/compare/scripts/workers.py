"""A loader whose items take their time, with or without workers: --workers N."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.ones(64) * index


if __name__ == "__main__":
    workers = int(sys.argv[sys.argv.index("--workers") + 1])
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in DataLoader(Slow(), batch_size=4, num_workers=workers):
        time.sleep(0.05)  # the work of a model that a test can afford
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
