"""A training with steps of many kinds, and what is recorded of it: JSON without times.

The first word is `fast`, or `never` to keep steps off the fast path; what is recorded must be the same. The second word
is the seed, the third how the program is made: `loader` (batches as pairs), `plain` (no model in sight), `tokens`,
`alone` (no loader), `accumulating`, `scaled` (by a loss scaler that now and then skips), or `two` (models). With a
fourth word, `late`, steps end as on a GPU.
"""

import contextlib
import itertools
import json
import random
import sys

import torch
from torch.utils.data import DataLoader

from trainhooks import api, session
from trainhooks.auto import imports
from trainhooks.auto.instrumentation import framework, phase, span
from trainhooks.auto.steps import fast_path, parameter_updates
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.batch_assembler import BatchAssembler
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import PlainStep

way, seed, kind, *late = sys.argv[1:]
chance = random.Random(int(seed))
if way == "never":
    fast_path.FastPath.arm = lambda *_: None
on_path = 0
end_step = fast_path.FastPath.end_step


def ended(path, t):
    global on_path
    on_path += 1
    end_step(path, t)


fast_path.FastPath.end_step = ended
session.Session.start = lambda _: None  # nothing is recorded: the lane is looked at here
if late:
    record_step = parameter_updates.Optimizers.record_step

    def on_gpu(self, key, optimizer):
        """As if the parameters were on a GPU, where a step ends with what comes next."""
        record_step(self, key, optimizer)
        self._on_gpu[key] = True, self._on_gpu[key][1]
        return True

    parameter_updates.Optimizers.record_step = on_gpu
imports.install()

torch.manual_seed(0)
first = torch.nn.Embedding(50, 4) if kind == "tokens" else torch.nn.Linear(4, 4)
hidden = [torch.nn.Sequential(first, torch.nn.Tanh())]  # not to be found in any frame
del first
call = (lambda x: hidden[0](x)) if kind == "plain" else hidden[0]
optimizer = torch.optim.SGD(hidden[0].parameters(), lr=1e-2)
critic = torch.nn.Linear(4, 1)
head = torch.nn.Linear(4, 4)
if kind == "two":
    optimizer.add_param_group({"params": head.parameters()})


class Scaler(torch.amp.GradScaler):
    """On the CPU, without the kernels that look for what is not finite: it skips at random."""

    def _unscale_grads_(self, optimizer, *_):
        return {None: torch.tensor(float(chance.random() < 0.1))}

    def _maybe_opt_step(self, optimizer, state, *args, **kwargs):
        skips = sum(each.item() for each in state["found_inf_per_device"].values())
        return None if skips else optimizer.step(*args, **kwargs)

    def update(self):
        self._per_optimizer_states.clear()


scaler = Scaler("cpu", init_scale=2.0)
if kind == "tokens":
    data = [{"input_ids": torch.randint(0, 50, (2 + i % 3, 5 + i % 4))} for i in range(12)]
    loader = DataLoader(data, batch_size=None)
elif kind == "plain":
    loader = DataLoader(torch.randn(27, 4), batch_size=4)
else:
    size = 2 if kind == "accumulating" else 4
    loader = DataLoader([(torch.randn(4), i) for i in range(27)], batch_size=size)
validation = DataLoader(torch.randn(6, 4) if kind != "tokens" else torch.zeros(6, 3, dtype=torch.long), batch_size=2)
others = []


def inputs(batch):
    return batch["input_ids"] if kind == "tokens" else batch if kind == "plain" else batch[0]


def loss_of(batch):
    made = call(inputs(batch))
    return (head(made) if kind == "two" else made).square().mean()


def usual(batches):
    """A step that most others are like."""
    for batch in batches:
        loss = loss_of(batch) / (3 if kind == "accumulating" else 1)
        (scaler.scale(loss) if kind == "scaled" else loss).backward()
    if kind == "scaled":
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()


def fetched(batch, following):
    """The batches of a step."""
    yield batch
    for _ in range(2 if kind == "accumulating" else 0):
        yield from itertools.islice(following, 1)


def evaluate():
    with torch.no_grad():
        for batch in validation:
            call(batch)


def fails(what):
    with contextlib.suppress(RuntimeError, IndexError, TypeError):
        what()


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("as told")


def odd(what, batch):
    """A step with something else in it."""
    if what == "twice":
        loss_of(batch)
    if what == "look":
        with torch.no_grad():
            loss_of(batch)
    if what == "failed forward":
        fails(lambda: call("nonsense"))
    if what == "span":
        with span("checkpoint"):
            pass
    loss = loss_of(batch)
    if what == "phase":
        with phase("reward"):
            pass
    optimizer.zero_grad()
    if what == "two backwards":
        loss.backward(retain_graph=True)
    if what == "grad":
        torch.autograd.grad(loss, [next(iter(optimizer.param_groups[0]["params"]))], retain_graph=True)
    if what == "failed backward":
        fails(lambda: Fails.apply(loss).backward())
    if what == "vector":
        (loss * torch.ones(2)).backward(torch.ones(2))
    elif what == "not finite":
        (loss * float("nan")).backward()
        optimizer.zero_grad()
    else:
        loss.backward()
    if what == "span after":
        with span("checkpoint"):
            pass
    if what == "closure":
        optimizer.step(lambda: loss)
    elif what == "failed step":
        fails(lambda: optimizer.step(lambda: call(None)))
    elif what == "another optimizer":
        others[:] = [torch.optim.SGD(critic.parameters(), lr=1e-2)]
        critic(torch.ones(1, 4)).sum().backward()
        others[0].step()
        optimizer.step()
        others.clear()
    elif what != "no update":
        optimizer.step()
    if what == "logged":
        api.log(reward=1.0)
    if what == "evaluation":
        evaluate()
    if what == "in training mode":
        loss_of(batch)
    if what == "without a batch":
        loss_of(batch).backward()
        optimizer.step()


ODD = (
    "twice", "look", "failed forward", "span", "phase", "two backwards", "grad", "failed backward", "vector",
    "not finite", "span after", "closure", "failed step", "another optimizer", "no update", "logged", "evaluation",
    "in training mode", "without a batch",
)  # fmt: skip
for _ in range(24):
    following = iter(list(loader) if kind == "alone" else loader)
    for batch in following:
        if chance.random() < 0.12:
            odd(chance.choice(ODD), batch)
        else:
            usual(fetched(batch, following))
        if chance.random() < 0.01:
            break
    if chance.random() < 0.3:
        evaluate()
framework.tracker.finish()

entries = session._session.lanes[0].entries
assembler = Assembler(ProcessState(), "main", True)
batches = BatchAssembler(assembler)
while entries:
    batches.assemble(entries, 8)
assembler.release_held()
TIMES = ("t", "start", "duration", "own")
for event in assembler.events:
    if isinstance(event, PlainStep):
        event = event.as_event()
    if not {"forwards", "plan", "updates"}.isdisjoint(event.get("facts", ())):
        continue  # repeated calls, loops and updates are looked for in the slow path alone
    if "passes" in event.get("facts", ()):
        continue  # reported once a second
    recorded = {name: value for name, value in event.items() if name not in TIMES}
    if "phases" in recorded:
        seconds = [each[1] for each in recorded["phases"]]
        assert min(seconds) >= 0 and sum(seconds) <= event["duration"] + 1e-9, event
        recorded["phases"] = [(name, times) for name, _, _, times in recorded["phases"]]
    print(json.dumps(recorded, sort_keys=True, default=str))
print(on_path, file=sys.stderr)
