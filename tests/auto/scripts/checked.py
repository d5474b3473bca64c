"""Trainings in many ways, one forked child each, and what the checks of their steps find: a line of JSON for each."""

import gc
import json
import os
import sys
import tempfile
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainhooks import session
from trainhooks.auto import imports
from trainhooks.auto.instrumentation import framework
from trainhooks.auto.models import update_checks

session.Session.start = lambda _: None  # nothing is recorded
imports.install()
torch.set_num_threads(1)
found = {}
update_checks.put_facts = lambda updates: (found.clear(), found.update(updates))
X = torch.randn(400, 8)
Y = (X[:, 0] > 0).long()


def network(dropout=0.5):
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))


def loader():
    return DataLoader(TensorDataset(X, Y), batch_size=16)


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def replicated(model):
    return nn.parallel.DistributedDataParallel(model)


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh  # here: an older torch has none
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


def plain(
    model=None, parameters=None, zero=None, backward=None, rate=0.05, before_epoch=None, after_epoch=None, epochs=2
):
    model = model or network()
    optimizer = torch.optim.SGD(parameters or model.parameters(), lr=rate, momentum=0.9)
    for epoch in range(epochs):
        (before_epoch or (lambda model, epoch: model.train()))(model, epoch)
        for x, y in loader():
            (zero or (lambda model, optimizer: optimizer.zero_grad()))(model, optimizer)
            loss = loss_of(model, x, y)
            (backward or (lambda loss, model: loss.backward()))(loss, model)
            optimizer.step()
        if after_epoch is not None:
            after_epoch(model)


def no_zero(model, optimizer):
    pass


def zero_data(model, optimizer):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data.zero_()


def drop(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = None


def decay(model, optimizer):
    """A trace of old gradients, on purpose."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)


def assign(loss, model):
    parameters = list(model.parameters())
    for i, gradient in enumerate(torch.autograd.grad(loss, parameters)):
        parameters[i].grad = gradient


def twice(loss, model):
    loss.backward(retain_graph=True)
    (0.1 * loss).backward()


def stay_in_eval(model, epoch):
    if epoch == 0:
        model.train()


def freeze_norms(model, epoch):
    model.train()
    model[1].eval()


def evaluate(model):
    model.eval()
    for x, _ in loader():
        model(x)


def evaluate_without(model):
    with torch.no_grad():
        evaluate(model)


def forces(model):
    """An evaluation that needs gradients: of the input, as a force field does."""
    model.eval()
    for x, _ in loader():
        x.requires_grad_(True)
        torch.autograd.grad(model(x).sum(), x)


def half_frozen():
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    plain(model)


def gan(rate=1e-3):
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=rate)
    for _ in range(2):
        for x, _ in loader():
            of_critic.zero_grad()
            fake = generator(torch.randn(16, 4))
            (critic(fake).mean() - critic(x).mean()).backward(retain_graph=True)
            of_critic.step()
            of_generator.zero_grad()
            (-critic(fake.clone()).mean()).backward()
            of_generator.step()


def carried():
    """Each pass also goes back through the graph of the step before."""
    weights = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weights], lr=1e-4)
    before = torch.zeros(16, 8)
    for _ in range(2):
        for x, _ in loader():
            optimizer.zero_grad()
            now = x * weights
            (now.sum() + 0.1 * before.sum()).backward(retain_graph=True)
            before = now
            optimizer.step()


def accumulated():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        for i, (x, y) in enumerate(loader()):
            loss_of(model, x, y).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()


def closure():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in loader():

        def closed(batch=(x, y)):
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            return loss

        optimizer.step(closed)


def averaged():
    """A copy that follows by a moving average, and never gets gradients."""
    model = network()
    copy = torch.optim.swa_utils.AveragedModel(model)
    plain(model, after_epoch=lambda model: copy.update_parameters(model))


def evolved():
    """Weights that change without gradients, though an optimizer steps."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(40):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=1e-3)
            loss_of(model, X[:16], Y[:16])
        optimizer.step()


def target_trained():
    """Q-learning whose optimizer has the target network, which gets the other one's weights now and then."""
    online, target = network(), network()
    optimizer = torch.optim.SGD(target.parameters(), lr=0.05)
    for step in range(40):
        if step % 15 == 0:
            target.load_state_dict(online.state_dict())
        optimizer.zero_grad()
        loss_of(online, X[:16], Y[:16]).backward()
        optimizer.step()


def large_table(sparse=False, tied=False):
    table = nn.Embedding(70_000, 64, sparse=sparse)
    out = nn.Linear(64, 70_000 if tied else 2, bias=False)
    if tied:
        out.weight = table.weight
    model = nn.Sequential(table, out)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randint(70_000, (4,))), torch.zeros(4, dtype=torch.long))
        loss.backward()
        optimizer.step()


def ranks(
    without=lambda model, last: nullcontext(),
    around=lambda model: nullcontext(),
    between=lambda model: None,
    wrap=replicated,
):
    """Accumulation over four passes, on one rank of one.

    Args:
        without: a context for the model's call and its pass; of the last one or not.
        around: the same for the pass alone.
        between: what is done after each pass.
    """
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
        model = wrap(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for i in range(64):
            with without(model, i % 4 == 3):
                loss = loss_of(model, X[:16], Y[:16])
                with around(model):
                    loss.backward()
            between(model)
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        dist.destroy_process_group()


def no_sync(model, last):
    return nullcontext() if last else model.no_sync()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def encoded(freeze=lambda encoder: None, after=lambda encoder, step: None, copy=False, late=0):
    """An encoder that no optimizer has, and a head: what becomes of the encoder's gradients?"""
    encoder, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU()), nn.Linear(8, 2)
    freeze(encoder)
    masters = [nn.Parameter(parameter.detach().clone()) for parameter in encoder.parameters()]
    optimizer = torch.optim.SGD([*head.parameters(), *(masters if copy else ())], lr=0.05)
    rare = torch.optim.SGD(encoder.parameters(), lr=0.05) if late else None
    for step in range(100):
        x, y = X[:16], Y[:16]
        loss = nn.functional.cross_entropy(head(encoder(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(encoder, step)
        if rare is not None and step % late == late - 1:
            rare.step()
            rare.zero_grad()


def descend(encoder, step):
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter -= 0.05 * parameter.grad
            parameter.grad = None


def step_in_hooks(encoder):
    for parameter in encoder.parameters():
        parameter.register_hook(lambda gradient, data=parameter.data: data.sub_(0.05 * gradient))


def adapted():
    """Small trained layers beside large ones that were left as they are."""
    base, adapter = nn.Linear(8, 8), nn.Linear(8, 8)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.05)
    for _ in range(100):
        loss = nn.functional.cross_entropy(base(adapter(X[:16])), Y[:16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


KINDS = {
    "plain": plain,
    "encoder": encoded,
    "encoder beside": adapted,
    "encoder frozen": lambda: encoded(lambda encoder: encoder.requires_grad_(False)),
    "encoder by hand": lambda: encoded(after=descend),
    "encoder in hooks": lambda: encoded(freeze=step_in_hooks),
    "encoder of copies": lambda: encoded(copy=True),
    "encoder trained rarely": lambda: encoded(late=50),
    "never zeroed": lambda: plain(zero=no_zero),
    "zeroed by data": lambda: plain(zero=zero_data),
    "dropped": lambda: plain(zero=drop),
    "decayed": lambda: plain(zero=decay),
    "assigned": lambda: plain(zero=no_zero, backward=assign),
    "accumulated": accumulated,
    "closure": closure,
    "gan": gan,
    "gan without a critic": lambda: gan(rate=0.0),
    "no backward": lambda: plain(backward=lambda loss, model: None),
    "others": lambda: plain(parameters=list(nn.Linear(8, 2).parameters())),
    "target trained": target_trained,
    "half frozen": half_frozen,
    "averaged": averaged,
    "evolved": evolved,
    "no rate": lambda: plain(rate=0.0),
    # Longer: after the first steps only some are checked.
    "eval left on": lambda: plain(before_epoch=stay_in_eval, after_epoch=evaluate_without, epochs=80),
    "eval from the start": lambda: plain(before_epoch=lambda model, epoch: model.eval()),
    "frozen norms": lambda: plain(before_epoch=freeze_norms, after_epoch=evaluate_without),
    "eval with gradients": lambda: plain(after_epoch=evaluate),
    "eval without": lambda: plain(after_epoch=evaluate_without),
    "forces": lambda: plain(after_epoch=forces),
    "retained": lambda: plain(backward=lambda loss, model: loss.backward(retain_graph=True)),
    "retained and used": lambda: plain(backward=twice),
    "carried": carried,
    "large table": large_table,
    "sparse table": lambda: large_table(sparse=True),
    "tied table": lambda: large_table(tied=True),
    "averaged in each pass": ranks,
    "averaged around the pass": lambda: ranks(around=lambda model: model.no_sync()),
    "averaged and compiled": lambda: ranks(wrap=lambda model: torch.compile(replicated(model), backend="eager")),
    "averaged once": lambda: ranks(without=no_sync),
    "averaged and clipped": lambda: ranks(between=clip),
    "averaged and zeroed": lambda: ranks(between=lambda model: model.zero_grad(set_to_none=False)),
    "sharded": lambda: ranks(wrap=sharded),
}
gc.freeze()  # what the children share is neither copied nor searched for models
for kind in sys.argv[1:] or KINDS:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            KINDS[kind]()
            assert not framework.tracker.silent
            framework.tracker.finish()
            print(json.dumps([kind, found]), flush=True)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, kind
