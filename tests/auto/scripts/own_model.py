"""What programs do with a model that they train: it is saved, copied, scripted, traced, exported, replicated."""

import copy
import io
import pickle

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.layer(x))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for batch in DataLoader(torch.randn(32, 4), batch_size=4):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

x = torch.ones(1, 4)
for which in (model, torch.compile(model, backend="eager")):
    which(x)
    print(sorted(name for name in vars(copy.copy(which)) if name != "_compiled_call_impl"))
    copied = copy.deepcopy(which)
    with torch.no_grad():
        next(copied.parameters()).zero_()
    print(type(copied).__name__, copied(x).sum().item().hex(), which(x).sum().item().hex())
file = io.BytesIO()
torch.save(model, file)
print(len(file.getvalue()))
file.seek(0)
loaded = torch.load(file, weights_only=False)
print(sorted(vars(loaded)) == sorted(vars(Model())), loaded(x).sum().item().hex())
print(pickle.loads(pickle.dumps(model))(x).sum().item().hex())
print(torch.jit.script(model).code)
print(torch.jit.trace(model, x).code)
print(torch.fx.symbolic_trace(model).code)
print(torch.export.export(model, (x,)).graph_module.code)
replica = model._replicate_for_data_parallel()
replica.layer = model.layer
print(replica(x).sum().item().hex())
print(model.__call__.__func__ is torch.nn.Module.__call__, len(model._forward_hooks), len(model._forward_pre_hooks))
