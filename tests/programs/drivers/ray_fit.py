"""Ray Train's `TorchTrainer` with one worker on the CPU, as its guide shows."""

import ray
import torch
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_func():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
    loader = train.torch.prepare_data_loader(DataLoader(data, batch_size=32))
    model = train.torch.prepare_model(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        train.report({"loss": loss.item()})


ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=1, use_gpu=False)).fit()
