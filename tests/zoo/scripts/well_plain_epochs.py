"""A plain loop with workers, an evaluation and a checkpoint after each epoch."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return correct / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(42)
    device = "cpu"
    x = torch.randn(9000, 1, 16, 16)
    y = (x.mean((1, 2, 3)) > 0).long()
    train_loader = DataLoader(TensorDataset(x[:8000], y[:8000]), batch_size=64, shuffle=True, num_workers=1)
    test_loader = DataLoader(TensorDataset(x[8000:], y[8000:]), batch_size=256)
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 144, 2)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, 4):
        model.train()
        for batch_idx, (data, target) in enumerate(train_loader):
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            if batch_idx % 40 == 0:
                print(f"Train Epoch: {epoch} [{batch_idx * 64}/8000]\tLoss: {loss.item():.6f}")
        print(f"Test set: accuracy {evaluate(model, test_loader, device):.3f}")
        scheduler.step()
        with tempfile.TemporaryDirectory() as directory:
            torch.save(model.state_dict(), os.path.join(directory, "mnist.pt"))
