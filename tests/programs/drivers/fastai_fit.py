"""fastai's `Learner.fit_one_cycle`, as its tutorial for plain PyTorch data shows."""

import fastai.callback.schedule  # noqa: F401 - gives the learner its schedules
import torch
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(640, 32), torch.randint(0, 4, (640,))
loaders = DataLoaders(DataLoader(TensorDataset(x, y), 32), DataLoader(TensorDataset(x[:128], y[:128]), 64))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
Learner(loaders, model, loss_func=nn.CrossEntropyLoss()).fit_one_cycle(3, 1e-3)
