"""Trainings without a loader, each as tutorials write them: with no optimizer, with an agent, started again..."""

import random
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
random.seed(0)


def by_hand() -> None:
    """Plain tensors, updated through `.data`; gradients added up over two batches."""
    table, weight = torch.randn(27, 8), torch.randn(8, 27) * 0.1
    parameters = [table, weight]
    for p in parameters:
        p.requires_grad = True
    for _ in range(20):
        for p in parameters:
            p.grad = None
        for _ in range(2):
            ix = torch.randint(0, 27, (16,))
            loss = F.cross_entropy(table[ix] @ weight, (ix + 1) % 27)
            loss.backward()
        for p in parameters:
            p.data += -0.1 * p.grad


def looked_at() -> None:
    """Gradients of a model that learns nothing: which inputs matter. No training at all."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    for _ in range(20):
        x = torch.randn(3, 4, requires_grad=True)
        model.zero_grad()
        model(x).sum().backward()


def agent() -> None:
    """Q-learning: the model is asked for an action a few times between two updates."""
    q, target = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.Adam(q.parameters())
    for _ in range(20):
        for _ in range(4):
            int(q(torch.randn(1, 4)).argmax())
        batch = torch.randn(32, 4)
        with torch.no_grad():
            wanted = target(batch).max(1).values
        loss = F.mse_loss(q(batch).max(1).values, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def one_state() -> None:
    """REINFORCE: the policy is asked for one action after the other, each time on a single row of numbers."""
    policy = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(20):
        chances = []
        for _ in range(8):
            choice = torch.distributions.Categorical(logits=policy(torch.randn(4)))
            chances.append(choice.log_prob(choice.sample()))
        loss = -torch.stack(chances).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def again() -> None:
    """A cell of a notebook that is run again, and again: each time a new model, six in all."""
    for _ in range(6):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(5):
            x = torch.randn(8, 4)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def sharpness() -> None:
    """Sharpness-aware: one pass climbs by hand, the optimizer steps after the second; from a loader."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in torch.utils.data.DataLoader(torch.randn(80, 4), batch_size=8):
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=0.05)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def old_model() -> None:
    """The optimizer has the parameters of a model that was replaced: another one is called, and learns nothing."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model = nn.Linear(4, 1)
    for _ in range(20):
        x = torch.randn(8, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        model.zero_grad()
        loss.backward()
        optimizer.step()


globals()[sys.argv[1]]()
print("done")
