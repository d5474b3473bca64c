"""Optuna's `Study.optimize` over a small torch training, as its examples show."""

import optuna
import torch
from torch import nn


def objective(trial):
    torch.manual_seed(0)
    x, y = torch.randn(640, 32), torch.randn(640, 1)
    model = nn.Sequential(nn.Linear(32, trial.suggest_int("units", 16, 64)), nn.ReLU(), nn.LazyLinear(1))
    model(x[:1])
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    for epoch in range(2):
        for start in range(0, 640, 32):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[start : start + 32]), y[start : start + 32])
            loss.backward()
            optimizer.step()
        trial.report(loss.item(), epoch)
    return loss.item()


study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=5)
