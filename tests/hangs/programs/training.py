"""What the programs share: a tiny training that stands at a step, and the mark that says when it last went on."""

import os
import pathlib
import sys
import time

import torch

torch.set_num_threads(1)
AT = int(sys.argv[1])  # steps before it stands
SECONDS = 260.0  # for which the healthy ones are slow


class Slow(torch.nn.Linear):
    def forward(self, batch):
        time.sleep(0.02)
        return super().forward(batch)


model = Slow(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def mark():
    """Say that nothing goes on from here."""
    pathlib.Path(os.environ["HANGS_MARK"]).touch()


def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()


def train(halt, steps=None):
    """Train, and call `halt` once at the step named on the command line."""
    for number in range(max(AT + 10, 60)):
        if number == AT:
            mark()
            halt()
        step()
