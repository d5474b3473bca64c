"""LBFGS, whose step evaluates a closure many times; the model is an attribute of a trainer."""

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.LBFGS(self.net.parameters(), lr=0.5, max_iter=6)

    def fit(self, x, y):
        def closure():
            self.optimizer.zero_grad()
            loss = (self.net(x) - y).square().mean()
            loss.backward()
            return loss

        for _ in range(7):
            print(self.optimizer.step(closure).item().hex())


torch.manual_seed(0)
x = torch.randn(32, 3)
Trainer().fit(x, x.sum(1, keepdim=True))
