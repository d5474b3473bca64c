"""torch.compile, with a backend that counts graphs. The ways in which programs use it, by the word given."""

import sys

import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

way = sys.argv[1]
graphs = 0


def backend(graph, inputs):
    global graphs
    graphs += 1
    return aot_eager(graph, inputs)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 8) if way == "ids" else nn.Identity()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        x = self.table(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        if way == "breaks":
            torch._dynamo.graph_break()
        return x.sum(1)


torch.manual_seed(0)
torch._dynamo.config.recompile_limit = 3
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)  # before the model is compiled, as in nanoGPT
if way == "in_place":
    model.compile(backend=backend)
elif way == "sequential":
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
elif way not in ("step", "function"):
    model = torch.compile(model, backend=backend, dynamic=False, fullgraph=way == "ids")


def loss_of(x):
    return model(x).square().mean()


def step(x):
    loss = loss_of(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


if way == "function":
    loss_of = torch.compile(loss_of, backend=backend, fullgraph=True)
elif way == "step":
    step = torch.compile(step, backend=backend)
for i in range(8):
    x = torch.randint(8, (4, 64)) if way == "ids" else torch.randn(2 + i if way == "recompiles" else 4, 8)
    print(step(x).item().hex())
print("graphs", graphs)
