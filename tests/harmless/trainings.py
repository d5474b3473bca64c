"""Programs with torch: losses to the last bit, weights, checkpoints, what they see of torch, living tensors, memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.harmless.compare import LIVING, PYTHON, ROOT, SCRIPTS, Program

# Times in logs, and progress bars, which are drawn when enough time has passed.
TIMES = re.compile(rb"'\w*(_time|runtime|_per_second)': '?[\d.e+-]+'?|\d+:\d\d:\d\d.*it/s|USDT:.*")
BARS = re.compile(rb"^.*\d+%\|.*\n|^\s*(\x1b\[A)?\s*\n", re.MULTILINE)
# What docs/harmless.md says that a program can see: torch's other line in a traceback, and the loss read in a profile.
OTHER_LINE = re.compile(
    rb'(  File "[^"]*module\.py", line )\d+, in _wrapped_call_impl\n[^\n]*\n( *[~^]+\n)?'
    rb'(  File "[^"]*fast_path\.py", line \d+, in called\n[^\n]*\n)?'  # Python 3.10
)
LOSS_READ = re.compile(rb"\('aten::(item|_local_scalar_dense)', \d+\), ")


def masked(output: bytes) -> bytes:
    """Return the output without times, and without what is documented to differ."""
    return LOSS_READ.sub(b"", OTHER_LINE.sub(b"", BARS.sub(b"", TIMES.sub(b"TIME", output.replace(b"\r", b"\n")))))


def in_order(output: bytes) -> bytes:
    """Return the masked output with what ranks print of themselves at its end, by rank: they end in any order."""
    rows: list[bytes] = masked(output).splitlines(keepends=True)
    ordered: list[bytes] = sorted(rows, key=lambda row: row if row.startswith(b"rank ") else b"")
    return b"".join(ordered)


def with_workers(output: bytes) -> bytes:
    """Return the masked output without how many tensors lived at the first step: batches arrive early, or do not."""
    return re.sub(rb"(of the first step \d+ of) \d+", rb"\1 N", masked(output))


ZOO = ROOT / "tests" / "zoo" / "scripts"
TORCHRUN = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

# A training whose end prints every loss, the weights and the living tensors exactly.
LOOP = """
import gc, hashlib, random, sys, torch, numpy
from torch import nn
torch.manual_seed(3); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(640, 32), torch.randn(640, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=WORKERS)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(loss.item().hex())
digest = hashlib.sha256(b''.join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print(digest, torch.rand(1).item(), random.random() != 0, numpy.random.get_state()[1][0] >= 0)
torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'state.pt')
gc.collect()
tensors = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
print(len(tensors), sum(t.nbytes for t in tensors))
"""
# What a program can see of its model, of torch and of itself after some steps.
SEEN = """
import copy, inspect, io, pickle, sys, threading, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.layer, self.table = nn.Linear(4, 4), nn.Embedding(4, 4)
    def forward(self, x, scale: float = 1.0):
        'The doc.'
        return self.layer(x) * scale
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(8):
    net(torch.randn(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
own = '_compiled_call_impl'  # torch's place for another call; docs/harmless.md says that it is used
print(sorted(net.__dict__.keys() - {own}), sorted(optimizer.__dict__), sorted(optimizer.state_dict()))
print(inspect.signature(net.forward), net.forward.__doc__, inspect.signature(type(net).__call__), net)
print(len(net._forward_hooks), len(net._forward_pre_hooks), len(net._backward_hooks))
print(len(optimizer._optimizer_step_post_hooks), len(optimizer._optimizer_step_pre_hooks))
print(type(net).__mro__, type(net.layer).__name__, type(optimizer).__name__)
print(inspect.signature(torch.Tensor.backward), inspect.signature(torch.save), optimizer.step.__name__)
print(inspect.signature(optimizer.step))
print(inspect.getsource(torch.Tensor.item) if hasattr(torch.Tensor.item, '__code__') else torch.Tensor.item)
twin = copy.deepcopy(net); pickled = pickle.loads(pickle.dumps(net))
print(all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters())))
print(sorted(twin.__dict__), sorted(pickled.__dict__))
print(len(pickle.dumps(net)), len(pickle.dumps(optimizer)), pickle.dumps(torch.save))
print(torch.jit.script(net.table).code, sorted(twin.table.__dict__))
print(torch.jit.script(net.layer).code, torch.fx.symbolic_trace(net).code)
def called(w): return torch.func.functional_call(net, {'layer.weight': w}, (torch.ones(1, 4),)).sum()
print(torch.func.grad(called)(net.layer.weight.detach()).shape)
print(sys.gettrace(), sys.getprofile(), torch.is_grad_enabled(), torch.get_default_dtype())
print(torch.is_deterministic_algorithms_warn_only_enabled())
print(sorted(k for k in sys.modules if k.split('.')[0] in ('zmq', 'psutil', 'pynvml', 'textual', 'plotext')))
"""
ODD = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Interrupted(BaseException): pass
def losses():
    for n in range(30):
        try:
            loss = model(torch.randn(4, 8)).pow(2).mean()
            if n == 10: raise Interrupted
            loss.backward()
            if n % 7 == 0: continue
            optimizer.step(); optimizer.zero_grad(set_to_none=n % 2 == 0)
            yield loss.item()
        except Interrupted: print('interrupted')
        finally: print(n)
print([x.hex() for x in losses()])
"""
PROFILED = """
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for _ in range(5):
        model(torch.ones(2, 8)).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(sorted((e.key, e.count) for e in profile.key_averages()))
"""
CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
with torch.autograd.set_detect_anomaly(True, check_nan=True):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(6):
        with torch.autocast('cpu', torch.bfloat16):
            loss = checkpoint(model, torch.ones(2, 8), use_reentrant=False).float().sum()
        loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
    try: (model(torch.full((1, 8), float('nan'))).sum()).backward()
    except RuntimeError as error: print(str(error)[:60])
"""
FULLGRAPH = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
quick = torch.compile(model, fullgraph=True, backend='aot_eager')
for _ in range(12):
    loss = quick(torch.randn(4, 8)).pow(2).mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(loss.item().hex())
print(torch._dynamo.utils.counters['graph_break'], torch._dynamo.utils.counters['stats']['unique_graphs'])
"""
EXPORTED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5): model(torch.ones(1, 4)).sum().backward(); optimizer.step()
program = torch.export.export(model, (torch.ones(1, 4),))
print(program.graph_module.code, sorted(program.state_dict))
torch.save(model, 'whole.pt'); print(torch.load('whole.pt', weights_only=False)(torch.ones(1, 4)).tolist())
"""
TERMINATED = """
import os, signal, sys, torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def save(*_):
    torch.save(model.state_dict(), 'last.pt'); print('saved'); sys.exit(0)
signal.signal(signal.SIGTERM, save)
torch.manual_seed(0); nn.init.ones_(model.weight); nn.init.zeros_(model.bias)
loader = torch.utils.data.DataLoader(torch.ones(400, 4), batch_size=4, num_workers=2)
for n, x in enumerate(loader):
    model(x).sum().backward(); optimizer.zero_grad()
    if n == 20: os.kill(os.getpid(), signal.SIGTERM)
"""
# Scripts of the tests of automatic hooks, with arguments. The second is whether its peak memory says something.
SCRIPTED: tuple[tuple[tuple[str, ...], bool, bool], ...] = (
    (("plain_loop.py",), True, True),
    (("plain_accumulation.py",), False, True),
    (("gan.py", "loader"), False, True),
    (("gan.py", "memory"), False, False),
    (("gan.py", "critics"), False, False),
    (("lbfgs.py",), False, False),
    (("nanogpt.py",), True, False),
    (("scaler.py",), False, False),
    (("own_model.py",), False, False),
    *((("no_loader.py", kind), False, False) for kind in ("by_hand", "looked_at", "agent", "one_state", "sharpness")),
    (("failing.py", "program"), False, True),
    (("failing.py", "backward"), False, False),
    (("failing.py", "data"), False, False),
    (("accelerate_loop.py",), True, False),
    (("hf_trainer.py",), True, False),
    (("lightning_fit.py", "lightning"), True, False),
    (("trl_grpo.py",), True, False),
)


def _training(
    name: str, text: str, memory: bool = False, short: bool = True, masking: Callable[[bytes], bytes] = masked
) -> Program:
    """Return a training that ends with a line on the living tensors."""
    return Program(
        name,
        "training",
        (PYTHON, str(LIVING), "train.py"),
        files={"train.py": text},
        memory=memory,
        short=short,
        ends=0,
        masked=masking,
    )


TRAININGS = (
    _training("losses, weights, checkpoint, living tensors", LOOP.replace("WORKERS", "0"), memory=True),
    _training("the same with two workers", LOOP.replace("WORKERS", "2"), memory=True, masking=with_workers),
    _training("what a program sees of its model and of torch", SEEN),
    _training("steps left by errors and continue, in a generator", ODD),
    _training("the names in torch's profiler", PROFILED),
    _training("checkpointing, autocast and anomaly detection", CHECKPOINTED),
    _training("a full graph", FULLGRAPH, short=False),
    _training("export and a whole model saved", EXPORTED, short=False),
    _training("a checkpoint at SIGTERM, with workers", TERMINATED),
    *(
        Program(
            " ".join(words),
            "training",
            (PYTHON, str(LIVING), str(SCRIPTS / words[0]), *words[1:]),
            memory=memory,
            short=short,
            ends=int(words[0] == "failing.py"),
            masked=masked,
        )
        for words, memory, short in SCRIPTED
    ),
    *(
        Program(
            f"rl.py {kind}",
            "training",
            (PYTHON, str(LIVING), str(ZOO / "rl.py"), kind),
            short=kind == "vectorized",
            ends=0,
            masked=masked,
        )
        for kind in ("vectorized", "in_eval_mode", "reinforce", "continuous", "imitation")
    ),
    Program(
        "ddp.py under torchrun",
        "training",
        (*TORCHRUN, str(LIVING), str(SCRIPTS / "ddp.py")),
        memory=True,
        short=False,
        ends=0,
        masked=in_order,
    ),
    Program(
        "ddp.py spawn",
        "training",
        (PYTHON, str(LIVING), str(SCRIPTS / "ddp.py"), "spawn"),
        short=False,
        ends=0,
        masked=in_order,
    ),
)
