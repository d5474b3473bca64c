"""Tensors: subclasses, modes, printing, functions that a program replaces or inspects, profilers, memory."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TORCH, probes

TEXTS = {
    "functions that a tensor subclass sees": """
seen = []
class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(getattr(func, '__name__', str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})
for x, y in loader:
    loss = model(x.as_subclass(Named)).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(len(seen), seen[:20], seen[-8:])
""",
    "operations that a wrapper subclass sees": """
seen = []
class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner): return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    def __init__(self, inner): self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        seen.append(str(func)); unwrap = lambda t: t.inner if isinstance(t, Wrapped) else t
        out = func(*map(unwrap, args), **(kwargs or {})); return out
for x, y in loader: model(Wrapped(x)).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(len(seen), sorted(set(seen)))
""",
    "functions that a function mode sees": """
seen = []
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(getattr(func, '__name__', str(func))); return func(*args, **(kwargs or {}))
with Mode(): train()
print(len(seen), {name: seen.count(name) for name in sorted(set(seen))})
""",
    "operations that a dispatch mode sees": """
from torch.utils._python_dispatch import TorchDispatchMode
seen = []
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func)); return func(*args, **(kwargs or {}))
with Mode(): result = [nn.functional.mse_loss(model(x), y).backward() or optimizer.step() for x, y in loader]
print(len(seen), {name: seen.count(name) for name in sorted(set(seen))})
""",
    "a mode that is open from the first step": """
from torch.utils._python_dispatch import TorchDispatchMode
seen = []
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func)); return func(*args, **(kwargs or {}))
net = nn.Linear(4, 1); own = torch.optim.Adam(net.parameters())
for n, (x, y) in enumerate(loader):
    with Mode():
        seen.clear(); net(x).sum().backward(); own.step(); own.zero_grad(); print(n, len(seen), seen[:3])
""",
    "a batch of tokens under a dispatch mode": """
from torch.utils._python_dispatch import TorchDispatchMode
seen = []
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func)); return func(*args, **(kwargs or {}))
rows = [{'input_ids': torch.arange(4), 'attention_mask': torch.ones(4, dtype=torch.long)} for _ in range(24)]
table = nn.Embedding(8, 4); own = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=0.1)
with Mode():
    for batch in torch.utils.data.DataLoader(rows, batch_size=4):
        model(table(batch['input_ids'])).sum().backward(); own.step(); own.zero_grad()
print(len(seen), {name: seen.count(name) for name in sorted(set(seen))})
""",
    "fake tensors": """
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode(allow_non_fake_inputs=True) as mode:
    net = nn.Linear(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        loss = net(torch.ones(2, 4)).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss, net.weight.grad)
    try: print(loss.item())
    except Exception as error: print(type(error).__name__, str(error)[:60])
print(train())
""",
    "the count of operations": """
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter: print(train())
print(
    counter.get_total_flops(),
    sorted((str(k), sorted((str(o), n) for o, n in v.items())) for k, v in counter.get_flop_counts().items()),
)
for x, y in loader:
    with FlopCounterMode(display=False) as counter: model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
    print(counter.get_total_flops())
""",
    "printed tensors, losses and gradients": """
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    print(loss, repr(loss), f'{loss:.3f}', loss.grad_fn.name(), x[0], str(loss.shape))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print(model[0].weight, model[0].bias.grad, optimizer, loader.dataset.tensors[0][:2])
torch.set_printoptions(precision=2); print(loss)
""",
    "identity of torch's functions": """
import torch.autograd, torch.nn.functional
print(
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.cpu,
    torch.Tensor.numpy,
    type(torch.Tensor.backward),
    torch.Tensor.backward.__qualname__,
)
print(
    torch.autograd.backward is torch.autograd.__dict__['backward'],
    torch.autograd.grad.__module__,
    torch.save is torch.serialization.save,
)
print(torch.autograd.grad.__annotations__.keys(), torch.autograd.backward.__name__)
print(
    torch.load.__qualname__,
    torch.save.__module__,
    torch.compile.__qualname__,
    nn.Module.to.__annotations__.keys(),
    nn.Module.to.__defaults__,
)
""",
    "sources and signatures of what is watched": """
import inspect
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter
for one in (torch.autograd.backward, torch.autograd.grad, torch.save, nn.Module.to, nn.Module.cuda, DataLoader.__iter__,
        _BaseDataLoaderIter.__next__, torch.optim.Optimizer.__init__, torch.amp.GradScaler.step,
        torch.autocast.__init__, torch.cuda._lazy_init, nn.Module.__call__):
    lines, first = inspect.getsourcelines(one)
    print(one.__qualname__, inspect.signature(one), len(lines), first, one.__module__, (inspect.getdoc(one) or '')[:30])
""",
    "documentation that is printed": """
import pydoc
for one in (torch.autograd.backward, torch.save, torch.utils.data.DataLoader, torch.optim.Optimizer):
    text = pydoc.render_doc(one, renderer=pydoc.plaintext); print(len(text), text[:120])
""",
    "functions that can be overridden": """
from torch.overrides import (
    get_ignored_functions,
    get_overridable_functions,
    get_testing_overrides,
    is_tensor_method_or_property,
    resolve_name,
)
functions = get_overridable_functions()
print(sum(map(len, functions.values())), len(get_testing_overrides()), len(get_ignored_functions()))
print(
    resolve_name(torch.Tensor.add),
    is_tensor_method_or_property(torch.Tensor.backward),
    torch.autograd.backward in get_ignored_functions(),
    torch.save in get_ignored_functions(),
)
""",
    "Tensor.backward replaced by the program": """
run = torch.Tensor.backward; calls = []
def ours(self, *args, **kwargs): calls.append(self.item().hex()); return run(self, *args, **kwargs)
torch.Tensor.backward = ours; print(train()); torch.Tensor.backward = run; print(train(), calls)
inner = torch.autograd.backward; torch.autograd.backward = lambda *a, **k: (calls.append('inner'), inner(*a, **k))[1]
print(train()); torch.autograd.backward = inner; print(train(), len(calls))
""",
    "unittest.mock around torch": """
from unittest import mock
with (
    mock.patch.object(torch.autograd, 'backward', wraps=torch.autograd.backward) as one,
    mock.patch('torch.save') as two,
    mock.patch.object(nn.Module, 'to', autospec=True) as three,
):
    print(train()); torch.save(model, 'absent'); model.to('cpu')
    print(one.call_count, two.call_args_list[0].args[1], three.call_count)
print(train(), os.path.exists('absent'), mock.create_autospec(torch.autograd.grad) is not None)
""",
    "profiler schedules, shapes and modules": """
from torch.profiler import ProfilerActivity, profile, record_function, schedule
ready = []
def keep(p):
    found = p.key_averages(group_by_input_shape=True); wanted = ('aten::addmm', 'aten::mm', 'own')
    ready.append(sorted({(e.key, str(e.input_shapes), e.count) for e in found if e.key in wanted}))
plan = schedule(wait=1, warmup=1, active=2, repeat=2)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, on_trace_ready=keep) as p:
    for x, y in loader:
        with record_function('own'): model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
        p.step()
print(p.step_num, ready)
""",
    "the old autograd profiler": """
with torch.autograd.profiler.profile(record_shapes=True, with_flops=True) as p: print(train())
own = {'aten::item', 'aten::_local_scalar_dense'}  # the loss that is read; docs/harmless.md
print(sorted((e.key, e.count, e.flops) for e in p.key_averages() if e.key not in own))
""",
    "a trace for the browser": """
import json
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p: print(train())
p.export_chrome_trace('/tmp/h-trace-%d.json' % os.getpid())
names = [e.get('name', '') for e in json.load(open('/tmp/h-trace-%d.json' % os.getpid()))['traceEvents']]
os.unlink('/tmp/h-trace-%d.json' % os.getpid())
print(
    sorted(
        {
            (n, names.count(n))
            for n in names
            if n.startswith(('Optimizer', 'autograd', 'aten::mse', 'aten::linear', 'enumerate'))
        }
    )
)
""",
    "torch.utils.benchmark": """
from torch.utils.benchmark import Timer
timer = Timer('train()', globals={'train': lambda: [model(x).sum().backward() or optimizer.step() for x, y in loader]})
m = timer.timeit(3)
print(m.number_per_run, len(m.times), m.task_spec.stmt, m.task_spec.num_threads, torch.get_num_threads())
print(train())
""",
    "memory that Python's tracer sees of the program": """
import tracemalloc
kept = []
def epoch():
    for x, y in loader: loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
epoch(); tracemalloc.start(); epoch(); gc.collect(); one = tracemalloc.take_snapshot(); epoch(); gc.collect()
two = tracemalloc.take_snapshot()
own = [s for s in two.compare_to(one, 'filename') if s.traceback[0].filename == __file__]
print([s.count_diff for s in own])
torch_grown = [s for s in two.compare_to(one, 'filename') if '/torch/' in s.traceback[0].filename and s.count_diff > 40]
print(torch_grown)
""",
    "torch.__dict__ and its submodules' names": """
ours = ('trainhooks', 'trainmon', 'zmq', 'psutil', 'msgspec')
print(
    len(vars(torch)),
    len(vars(torch.autograd)),
    len(vars(torch.optim)),
    len(vars(torch.utils.data)),
    len(vars(nn)),
    len(vars(torch.Tensor)),
)
print(sorted(k for k in sys.modules if k.startswith('torch') and k.count('.') == 1))
print(len([k for k in sys.modules if k.startswith('torch')]), [k for k in vars(torch) if any(o in k for o in ours)])
""",
    "what pickles of torch's functions hold": """
import pickle, pickletools
for one in (
    torch.autograd.backward,
    torch.autograd.grad,
    torch.save,
    nn.Module.to,
    torch.optim.SGD.step,
    torch.amp.GradScaler.step,
    torch.utils.data.DataLoader.__iter__,
):
    text = pickle.dumps(one); print(text, pickle.loads(text) is one)
print(pickle.dumps(sys.excepthook), sys.excepthook.__name__)
""",
    "numbers read from tensors": """
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(
        loss.item().hex(),
        float(loss) == loss.item(),
        loss.detach().numpy().dtype,
        loss.tolist() == loss.item(),
        loss._backward_hooks,
        loss.is_leaf,
        loss.retains_grad,
        loss.requires_grad,
    )
""",
    "a loss of many kinds": """
kinds = [
    lambda l: l,
    lambda l: l.double(),
    lambda l: l.bfloat16(),
    lambda l: l[None],
    lambda l: torch.complex(l, l).real,
    lambda l: l.to_sparse() if 0 else l * 1,
    lambda l: torch.where(l > 1e9, l, l),
]
for kind in kinds:
    for x, y in loader:
        loss = kind(nn.functional.mse_loss(model(x), y)); optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.dtype, loss.shape, loss.double().sum().item().hex())
""",
}
PLAIN = {
    "functional tensors and meta registrations": """
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
def step(x): return torch.func.functionalize(lambda v: net(v).add_(1).sum())(x)
for _ in range(5):
    loss = step(torch.ones(1, 2)); print(loss, type(loss).__name__); net(torch.ones(1, 2)).sum().backward(); own.step()
""",
    "default device and dtype": """
torch.set_default_dtype(torch.float64); torch.set_default_device('cpu')
net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = net(torch.ones(1, 2)).sum(); loss.backward(); own.step()
    print(
        loss.item().hex(),
        loss.dtype,
        torch.get_default_device(),
        len(torch.overrides._get_current_function_mode_stack()),
    )
torch.set_default_device(None); print(torch.ones(1).dtype, len(torch.overrides._get_current_function_mode_stack()))
""",
}

PROBES = (*probes("tensors", TEXTS), *probes("tensors", PLAIN, before=TORCH))
