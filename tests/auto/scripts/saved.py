"""Models with ways of their own of being saved and copied, and functions of torch, sent and inspected in every way.

saved.py models | functions | lightning | ddp | load DIRECTORY
"""

from torch import save as first_save  # before anything else of torch  # isort: skip
import copy
import inspect
import io
import multiprocessing
import operator
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
from torch.autograd import backward, grad
from torch.utils.data import DataLoader

try:
    import cloudpickle
    import dill
except ImportError:
    cloudpickle = dill = None


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


class GetState(Plain):
    def __getstate__(self):
        return dict(self.__dict__)


class Reduce(Plain):
    def __reduce__(self):
        return rebuilt, (type(self), dict(self.__dict__))


class ReduceEx(Plain):
    def __reduce_ex__(self, protocol):
        return rebuilt, (type(self), self.__dict__.copy())


class DeepCopy(Plain):
    def __deepcopy__(self, memo):
        return rebuilt(type(self), copy.deepcopy(self.__dict__, memo))


def rebuilt(kind, state):
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


KINDS = (Plain, Reduce, ReduceEx, DeepCopy, GetState)
INPUT = torch.ones(2, 4)


def trained(kind):
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(INPUT).sum().backward()
        optimizer.step()
    return model


def is_plain(model):
    return model._compiled_call_impl is None


def called(model):
    print("in another process:", model(INPUT).tolist(), is_plain(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def models(directory):
    ways = {"deepcopy": copy.deepcopy, "save": saved}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        ways[f"pickle {protocol}"] = lambda model, protocol=protocol: pickle.loads(pickle.dumps(model, protocol))
    ways["pickle in Python"] = lambda model: pickle.loads(pickle._dumps(model))
    for kind in KINDS:
        model = trained(kind)
        for name, way in ways.items():
            other = way(model)
            print(kind.__name__, name, other(INPUT).tolist(), type(other) is kind, is_plain(other))
            torch.jit.script(other)
            torch.jit.script(model)
        print(kind.__name__, "copy", copy.copy(model)(INPUT).tolist())
        torch.save(model, f"{directory}/{kind.__name__}.pt")
        worker = multiprocessing.get_context("spawn").Process(target=called, args=(model,))
        worker.start()
        worker.join()
        print(worker.exitcode)
    if dill:  # last: they save this file's functions by their code, and the copies take their place
        print("dill", is_plain(pickle.loads(dill.dumps(model, byref=True))))
        print("cloudpickle", is_plain(pickle.loads(cloudpickle.dumps(model))))


def functions(directory):
    owners = {
        torch: ("save",),
        torch.serialization: ("save",),
        torch.autograd: ("backward", "grad"),
        torch.optim.Optimizer: ("__init__",),
        torch.amp.GradScaler: ("step",),
        torch.cuda: ("_lazy_init",),
        torch.nn.Module: ("to", "cuda"),
        torch.utils.data.DataLoader: ("__iter__",),
        torch.utils.data.dataloader._BaseDataLoaderIter: ("__next__",),
        torch.cuda.CUDAGraph: ("capture_begin", "capture_end", "replay"),
        torch.autocast: ("__init__",),
        sys: ("excepthook",),
    }
    found = {f"{owner.__name__}.{name}": getattr(owner, name) for owner, names in owners.items() for name in names}
    found.update({"first save": first_save, "backward": backward, "grad": grad})
    for name, function in found.items():
        print(name, inspect.signature(function), *map(partial(getattr, function), ("__name__", "__qualname__")))
        print(function.__module__, function.__doc__, copy.copy(function) is copy.deepcopy(function) is function)
        print([pickle.loads(pickle.dumps(function, protocol)) is function for protocol in range(6)])
        if name != "sys.excepthook":
            print(inspect.getsource(function), inspect.getmodule(function).__name__)
            print(cloudpickle is None or pickle.loads(cloudpickle.dumps(function)) is function)
    print(first_save is torch.save is torch.serialization.save, torch.autograd.grad is grad)
    print(pickle.loads(pickle.dumps(DataLoader.__iter__)) is DataLoader.__iter__)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        for save in (torch.save, first_save, torch.serialization.save):
            workers.submit(save, {"a": 1}, f"{directory}/functions.pt").result()
            print(torch.load(f"{directory}/functions.pt"))
    with open(f"{directory}/functions.pickle", "wb") as file:
        pickle.dump(list(found.values()), file)


def lightning(directory):
    from lightning.pytorch import LightningModule

    class Module(LightningModule, Plain):
        pass

    globals()["Module"] = Module
    Module.__qualname__ = "Module"
    model = trained(Module)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved(model)):
        print(other(INPUT).tolist(), is_plain(other))


def ddp(directory):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = trained(lambda: torch.nn.parallel.DistributedDataParallel(Plain()))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved(model)):
        print(other(INPUT).tolist(), is_plain(other))
    torch.distributed.destroy_process_group()


def load(directory):
    for kind in KINDS:
        model = torch.load(f"{directory}/{kind.__name__}.pt", weights_only=False)
        print(kind.__name__, model(INPUT).tolist(), is_plain(model), model.training)


if __name__ == "__main__":
    operator.getitem(globals(), sys.argv[1])(sys.argv[2])
