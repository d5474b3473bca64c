"""A program that names its phases itself, and writes every weight into its log at each step."""

import json
import os
import sys
import tempfile

import torch
from torch import nn

import trainhooks as th

MENDED = "mended" in sys.argv[1:]  # writes no weights
STEPS = 600 if MENDED else 300
th.init(name="verbose", total_steps=STEPS)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
path = os.path.join(tempfile.mkdtemp(), "weights.jsonl")
with open(path, "w") as log:
    for step in th.steps(range(STEPS)):
        x = torch.randn(8192, 20)
        with th.phase("forward"):
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        with th.phase("backward"):
            loss.backward()
        with th.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        with th.phase("logging"):
            weights = {} if MENDED else {name: value.tolist() for name, value in model.state_dict().items()}
            log.write(json.dumps({"step": step, "weights": weights}) + "\n")
            if not MENDED:
                log.flush()
                os.fsync(log.fileno())
        th.log(loss=loss)
os.remove(path)
