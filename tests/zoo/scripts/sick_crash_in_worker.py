"""One sample of the second pass cannot be read."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self):
        self.read = 0

    def __len__(self):
        return 400

    def __getitem__(self, index):
        self.read += 1
        if self.read > 300 and index == 399:
            raise OSError(f"sample {index}: truncated file")
        return torch.full((64,), float(index)), torch.tensor(index % 4)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(2):
        for x, y in DataLoader(Samples(), batch_size=8, num_workers=1):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
