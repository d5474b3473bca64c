"""A DataLoader's worker waits for a lock that nobody will release."""

import multiprocessing

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Cached(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        if i == 1234:
            lock.acquire()
            lock.acquire()
        return torch.full((16,), i / 4000), i % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i, (x, y) in enumerate(DataLoader(Cached(), batch_size=16, num_workers=1)):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"Train: [{i}/250] Loss: {loss.item():.4f}", flush=True)
