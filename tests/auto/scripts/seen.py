"""What a program can see of a training: each kind prints it on stdout, where nothing may differ under trainmon."""

import gc
import os
import sys
import tempfile
import traceback
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
warnings.showwarning = lambda message, kind, path, line, *_: print(message, os.path.basename(path), line)
data = torch.arange(80.0).view(40, 2) / 80


def train(net, loader, inputs=lambda batch: batch):
    optimizer = torch.optim.SGD([p for m in net._modules.values() for p in m._parameters.values()], lr=0.1)
    for batch in loader:
        loss = net(inputs(batch)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item().hex())


class Net(nn.Sequential):
    def parameters(self, recurse=True):
        print("parameters")
        return super().parameters(recurse)

    def modules(self):
        print("modules")
        return super().modules()

    def named_modules(self, *args, **kwargs):
        print("named_modules")
        return super().named_modules(*args, **kwargs)

    @property
    def config(self):
        print("config")
        return None


def methods():
    train(Net(nn.Linear(2, 1)), DataLoader(data, batch_size=4))


def batches():
    class Batch(dict):
        def get(self, *args):
            print("get", args)
            return super().get(*args)

        def __getitem__(self, key):
            print("item", key)
            return super().__getitem__(key)

    class Rows(list):
        def __getitem__(self, key):
            print("row", key)
            return super().__getitem__(key)

    class Plain:
        def __init__(self, x):
            self.x = x

        def __getattribute__(self, name):
            print("read", name)
            return object.__getattribute__(self, name)

    for kind, inputs in (
        (lambda x: Batch(x=x), lambda batch: batch["x"]),
        (lambda x: Rows([x]), lambda batch: batch[0]),
        (Plain, lambda batch: batch.x),
    ):
        loader = DataLoader(data, batch_size=4, collate_fn=lambda rows, kind=kind: kind(torch.stack(rows)))
        train(nn.Sequential(nn.Linear(2, 1)), loader, inputs)


def places():
    class Warning_(nn.Linear):
        def forward(self, x):
            for level in (1, 2, 4, 5):
                warnings.warn(f"level {level}", stacklevel=level)
            return super().forward(x)

    class Warns(nn.Sequential):
        def forward(self, x):
            warnings.warn("from the model", stacklevel=4)
            return super().forward(x)

    net = Warns(Warning_(2, 1))
    net[0].weight.register_hook(lambda gradient: warnings.warn("in backward", stacklevel=5))
    train(net, DataLoader(data, batch_size=4))


def tracebacks():
    class Fails(nn.Sequential):
        calls = 0

        def forward(self, x):
            type(self).calls += 1
            if self.calls in (2, 5):  # 2: while its operations are inspected
                raise ValueError(self.calls)
            return super().forward(x)

    net = Fails(nn.Linear(2, 1))
    optimizer = torch.optim.SGD([net[0].weight], lr=0.1)
    for n, x in enumerate(DataLoader(data, batch_size=4)):
        try:
            loss = net(x).sum()
            (loss.detach() if n == 7 else loss).backward()
            optimizer.step()
        except (ValueError, RuntimeError) as error:
            print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
    try:
        torch.optim.SGD([], lr=0.1)
    except ValueError as error:
        print([frame.name for frame in traceback.extract_tb(error.__traceback__)])


def imports():
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        with open(os.path.join(place, "peft.py"), "w") as file:
            file.write("import warnings\nwarnings.warn('old', stacklevel=2)\nraise ImportError('no more')\n")
        try:
            import peft  # noqa: F401
        except ImportError as error:
            print([frame.name for frame in traceback.extract_tb(error.__traceback__)])


def modes():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    loader = DataLoader([{"input_ids": torch.arange(2), "attention_mask": torch.ones(2)}] * 24, batch_size=4)
    net = nn.Sequential(nn.Embedding(4, 1))
    train(net, loader, lambda batch: batch["input_ids"])
    optimizer = torch.optim.SGD([net[0].weight], lr=0.1)
    for batch in loader:
        net(batch["input_ids"]).sum().backward()
        optimizer.step()
    with Mode():
        for batch in loader:
            net(batch["input_ids"]).sum().backward()
            optimizer.step()
    print(len(seen))


def handles():
    net = nn.Sequential(nn.Linear(2, 1))
    handle = net.register_forward_hook(lambda *_: None)
    other = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(lambda *_: None)
    print(handle.id, other.id)
    train(net, DataLoader(data, batch_size=4))


def living():
    """Gradients of a model that learns nothing, which is then deleted."""
    model = nn.Linear(2, 1)
    for _ in range(5):
        model.zero_grad()
        model(data).sum().backward()
    del model
    gc.collect()
    print(sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects()))


globals()[sys.argv[1]]()
