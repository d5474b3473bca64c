"""The model is asked twice for each batch: once for the loss, once more for the accuracy, with gradients each time."""

import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = "mended" in sys.argv[1:]  # asks once


class Classifier(nn.Module):
    def __init__(self, hidden=600):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 5)

    def forward(self, x):
        return self.head(self.body(x))


def loss_fn(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean()


torch.manual_seed(0)
x = torch.randn(8000, 40)
y = x[:, :5].argmax(1)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(9):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=80, shuffle=True):
        optimizer.zero_grad()
        if MENDED:
            answers = model(xb)
            loss, acc = nn.functional.cross_entropy(answers, yb), (answers.argmax(1) == yb).float().mean()
        else:
            loss, acc = loss_fn(model, xb, yb), accuracy(model, xb, yb)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {loss:.4f} accuracy {acc:.2%}")
