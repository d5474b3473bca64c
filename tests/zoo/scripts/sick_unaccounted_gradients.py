"""Looks at each number of each gradient in Python, after backward and before the optimizer steps."""

import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

MENDED = "mended" in sys.argv[1:]  # does not look at the gradients


def gradient_report(model):
    rows = {}
    for name, parameter in model.named_parameters():
        values = parameter.grad.flatten().tolist()
        mean = sum(values) / len(values)
        rows[name] = sum((v - mean) ** 2 for v in values) / len(values)
    return rows


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        self.criterion = nn.BCEWithLogitsLoss()

    def train_one_epoch(self):
        self.model.train()
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x).squeeze(1), y)
            loss.backward()
            if not MENDED and max(gradient_report(self.model).values()) > 1e6:
                print("gradients explode")
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(25_600, 64)
    data = TensorDataset(x, (x.sum(1) > 0).float())
    net = nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    trainer = Trainer(net, DataLoader(data, None, sampler=BatchSampler(RandomSampler(data), 512, False)))
    for epoch in range(10 if MENDED else 4):
        print(f"Epoch {epoch}: loss={trainer.train_one_epoch():.4f}")
