"""Trainings under tools, in odd interpreters and file systems, and what a program compares, replaces and reloads."""

from __future__ import annotations

from tests.harmless.compare import PYTHON, Program
from tests.harmless.torch_probes.made import probes

TOOLS = {
    "sys.monitoring or a tracer that counts the program's own lines": """
from collections import Counter
seen = Counter()
def trace(frame, event, argument):
    if frame.f_code.co_filename != __file__: return None
    seen[event, frame.f_lineno] += 1
    return trace
sys.settrace(trace); train(); sys.settrace(None); print(sorted(seen.items()))
""",
    "cProfile around each epoch": """
import cProfile, pstats
for _ in range(2):
    with cProfile.Profile() as profile: train()
    rows = pstats.Stats(profile).stats
    print(sorted((key[2], row[0]) for key, row in rows.items() if key[0] == __file__))
print(sum(row[0] for key, row in rows.items() if key[2] == 'mse_loss'))
""",
    "a profile of the calls of all threads": """
import threading
calls = []
def profile(frame, event, argument):
    if event == 'call' and frame.f_code.co_filename == __file__: calls.append(frame.f_code.co_name)
threading.setprofile(profile); one = threading.Thread(target=train); one.start(); one.join(); threading.setprofile(None)
print(calls)
""",
    "pdb's commands around a step": """
import io, pdb
commands = io.StringIO('next\\nnext\\np type(model).__name__\\nwhere 1\\ncontinue\\n')
def stepped(): loss = model(data[0][0]); loss.backward(); optimizer.step(); return loss
out = io.StringIO(); pdb.Pdb(stdin=commands, stdout=out, readrc=False).runcall(stepped); print(out.getvalue())
""",
    "tracemalloc of the program's own lines": """
import tracemalloc
tracemalloc.start(); kept = [bytearray(10_000) for _ in range(50)]; train()
found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)]).statistics('lineno')
print([(row.traceback[0].lineno, row.count // 10) for row in found[:1]])
""",
    "doctest of a function that trains": """
import doctest
def loss():
    '''
    >>> float.fromhex(train()) < 10
    True
    >>> model(torch.zeros(1, 4)).shape
    torch.Size([1, 1])
    '''
print(doctest.testmod(verbose=False))
""",
    "unittest with trainings, warnings and a failure": """
import unittest, warnings
class Case(unittest.TestCase):
    def test_trains(self): self.assertIsInstance(train(), str)
    def test_warns(self):
        with self.assertWarns(UserWarning): train(); warnings.warn('mine')
    def test_fails(self):
        with self.assertRaisesRegex(RuntimeError, 'shapes'): model(torch.ones(3, 3))
    def test_logs_nothing(self):
        with self.assertNoLogs() if hasattr(self, 'assertNoLogs') else warnings.catch_warnings(): train()
result = unittest.TextTestRunner(stream=open(os.devnull,
    'w')).run(unittest.defaultTestLoader.loadTestsFromTestCase(Case))
print(result)
""",
    "unittest.mock of torch's functions": """
from unittest import mock
with mock.patch('torch.nn.functional.mse_loss', side_effect=nn.functional.l1_loss) as called:
    print(train(), called.call_count)
with mock.patch.object(optimizer, 'step') as step: print(train(), step.call_count)
with mock.patch.object(torch.optim.SGD, 'step', autospec=True) as step: print(train(), step.call_count)
with mock.patch('torch.Tensor.backward') as backward: print(train(), backward.call_count)
with mock.patch.object(nn.Linear, 'forward', lambda self, x: x @ self.weight.T): print(train())
with mock.patch('time.time', return_value=5.0), mock.patch('time.monotonic', return_value=6.0): print(train())
with mock.patch('builtins.open', side_effect=OSError), mock.patch('os.write', side_effect=OSError): print(train())
print(train())
""",
    "timeit of a step": """
import timeit
print(timeit.timeit('train()', number=3, globals=globals()) > 0, train(), gc.isenabled())
""",
    "inspect of all that a step calls": """
import inspect
for one in (optimizer.step, optimizer.zero_grad, model.forward, model.__call__, torch.Tensor.backward, loader.__iter__,
            torch.optim.SGD, nn.Module, torch.utils.data.DataLoader, torch.save, torch.load, nn.Linear.forward):
    print(one.__name__ if hasattr(one, '__name__') else one, inspect.signature(one), inspect.isfunction(one),
          inspect.ismethod(one), inspect.isclass(one), one.__module__, one.__qualname__, bool(inspect.getdoc(one)))
""",
    "typing.get_type_hints and annotations": """
import typing
print(sorted(typing.get_type_hints(torch.optim.SGD.step)), sorted(typing.get_type_hints(type(model).forward)))
print(sorted(typing.get_type_hints(torch.optim.Optimizer.zero_grad)), optimizer.step.__annotations__)
""",
}
IDENTITY = {
    "types, classes and identities after training": """
print(type(model) is nn.Sequential, isinstance(optimizer, torch.optim.Optimizer), type(optimizer) is torch.optim.SGD)
print(type(loader) is torch.utils.data.DataLoader, type(loader.dataset) is type(data), type(model[0].weight))
print(type(optimizer.step).__name__, type(model.forward).__name__, type(torch.Tensor.backward).__name__)
print(model.__class__.__call__ is nn.Module.__call__, nn.Linear.__call__ is nn.Module.__call__)
print(optimizer.__class__.step.__qualname__, isinstance(model, nn.Module), issubclass(nn.Linear, nn.Module))
print(sys.modules['torch.optim.sgd'].SGD is torch.optim.SGD, torch.utils.data.DataLoader.__module__)
print(model == model, model in [model], optimizer in {optimizer}, hash(model) == id(model) >> 4 or hash(model) != 0)
""",
    "weak references of the program to what it trains": """
import weakref
seen = []
class Kept: pass
def make():
    own = nn.Linear(4, 1); opt = torch.optim.SGD(own.parameters(), lr=0.1); kept = Kept(); own.kept = kept
    for one, name in ((own, 'model'), (opt, 'optimizer'), (own.weight, 'weight'), (kept, 'kept')):
        weakref.finalize(one, seen.append, name)
    for x, y in loader: own(x).sum().backward(); opt.step(); opt.zero_grad()
    return weakref.ref(own), weakref.ref(opt)
refs = make(); print(sorted(seen), [one() for one in refs]); gc.collect(); print(sorted(seen), [one() for one in refs])
print(weakref.getweakrefcount(Kept()), len(weakref.WeakSet([model, optimizer])))
""",
    "ids are not kept alive over many models": """
import weakref
lost = []
for n in range(60):
    own = nn.Linear(4, 2); opt = torch.optim.Adam(own.parameters())
    own(torch.ones(2, 4)).sum().backward(); opt.step(); lost.append(weakref.ref(own)); lost.append(weakref.ref(opt))
del own, opt; gc.collect(); print(sum(one() is not None for one in lost))
""",
    "deepcopies of models, optimizers and loaders that go on": """
import copy
twin, other, third = copy.deepcopy((model, optimizer, loader)); shallow = copy.copy(model)
for x, y in third:
    loss = nn.functional.mse_loss(twin(x), y); other.zero_grad(); loss.backward(); other.step()
print(loss.item().hex(), train(), shallow(torch.ones(1, 4)).item().hex(),
    sorted(vars(twin)) == sorted(vars(shallow).keys() - {'_compiled_call_impl'} | vars(twin).keys()))
""",
    "pickles of every protocol, of bound methods too": """
import pickle
for protocol in range(2, 6):
    model2, optimizer2, forward, step = pickle.loads(pickle.dumps((model, optimizer, model.forward, optimizer.step),
        protocol))
    print(protocol, forward(torch.ones(1, 4)).item().hex(), len(optimizer2.state_dict()['state']),
        step.__self__ is optimizer2)
print(pickle.loads(pickle.dumps(torch.optim.SGD)) is torch.optim.SGD, pickle.dumps(torch.Tensor.backward)[:40])
""",
    "vars, dir and slots of what is trained": """
print(sorted(set(vars(model)) - {'_compiled_call_impl'}), len(set(dir(model))), sorted(vars(optimizer)),
    len(set(dir(optimizer))))
print(sorted(vars(loader)), len(dir(loader)), [sorted(vars(one)) for one in optimizer.param_groups[0]['params'][:1]])
print(sorted(vars(type(model))), sorted(vars(torch.optim.SGD)), len(vars(torch.optim.Optimizer)))
""",
    "an enum, a dataclass and a namedtuple as batches": """
import collections, dataclasses
Row = collections.namedtuple('Row', 'x y')
@dataclasses.dataclass(frozen=True)
class Batch: x: object; y: object
for n, (x, y) in enumerate(loader):
    batch = Row(x, y) if n % 2 else Batch(x, y)
    loss = nn.functional.mse_loss(model(batch.x), batch.y); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(loss.item().hex())
""",
    "refcounts of what a step is given": """
counts = []
for x, y in loader:
    out = model(x); loss = nn.functional.mse_loss(out, y); loss.backward(); optimizer.step(); optimizer.zero_grad()
    counts.append([sys.getrefcount(one) for one in (x, y, out, loss)])
print(counts)
""",
}
REPLACED = {
    "torch.optim reloaded in mid-training": """
import importlib
sgd = importlib.reload(sys.modules['torch.optim.sgd']); print(train())
own = sgd.SGD(model.parameters(), lr=0.1)
for x, y in loader: model(x).sum().backward(); own.step(); own.zero_grad()
print(type(own) is torch.optim.SGD, isinstance(own, torch.optim.Optimizer), train())
""",
    "torch.optim.optimizer reloaded": """
import importlib
base = torch.optim.Optimizer; module = importlib.reload(sys.modules['torch.optim.optimizer']); print(train())
class Own(module.Optimizer):
    def __init__(self, params): super().__init__(params, {'lr': 0.1})
    def step(self, closure=None):
        for one in self.param_groups[0]['params']: one.data -= 0.01 * one.grad
own = Own(model.parameters())
for x, y in loader: loss = model(x).pow(2).sum(); loss.backward(); own.step(); own.zero_grad()
print(loss.item().hex(), isinstance(own, base), isinstance(own, module.Optimizer), train())
""",
    "the data loader's module reloaded": """
import importlib
importlib.reload(torch.utils.data.dataloader); own = torch.utils.data.dataloader.DataLoader(data, batch_size=8)
for x, y in own: loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(loss.item().hex(), train(), isinstance(own, torch.utils.data.DataLoader))
""",
    "step, backward and __call__ replaced and put back": """
step, backward, call = torch.optim.SGD.step, torch.Tensor.backward, nn.Module.__call__
counts = [0, 0, 0]
def stepped(self, *args, **kwargs): counts[0] += 1; return step(self, *args, **kwargs)
def went(self, *args, **kwargs): counts[1] += 1; return backward(self, *args, **kwargs)
def called(self, *args, **kwargs): counts[2] += 1; return call(self, *args, **kwargs)
torch.optim.SGD.step, torch.Tensor.backward, nn.Module.__call__ = stepped, went, called; print(train(), counts)
torch.optim.SGD.step, torch.Tensor.backward, nn.Module.__call__ = step, backward, call; print(train(), counts)
print(torch.optim.SGD.step is step, torch.Tensor.backward is backward, nn.Module.__call__ is call)
""",
    "step of one instance replaced by a closure": """
original = optimizer.step; seen = []
def step(closure=None): seen.append(len(seen)); return original(closure)
optimizer.step = step; print(train(), seen); del optimizer.step; print(train(), seen, 'step' in vars(optimizer))
""",
    "functools.wraps, partial and lru_cache over torch's functions": """
import functools
torch.save_ = functools.wraps(torch.save)(lambda *args: torch.save(*args)); print(torch.save_.__wrapped__ is torch.save)
step = functools.partial(optimizer.step); loss_of = functools.partial(nn.functional.mse_loss, reduction='sum')
for x, y in loader: loss = loss_of(model(x), y); loss.backward(); step(); optimizer.zero_grad()
print(loss.item().hex(), functools.lru_cache(lambda one: 1)(model), train())
""",
    "builtins replaced while it trains": """
import builtins
kept = {name: getattr(builtins, name) for name in ('len', 'isinstance', 'type', 'getattr', 'hasattr', 'id', 'print')}
counts = {}
def counting(name, function):
    def call(*args):
        counts[name] = counts.get(name, 0) + (sys._getframe(1).f_code.co_filename == __file__); return function(*args)
    return call
for name in ('len', 'getattr', 'hasattr', 'id'): setattr(builtins, name, counting(name, kept[name]))
result = train()
for name in kept: setattr(builtins, name, kept[name])
print(result, sorted(counts.items()))
""",
    "gc callbacks and thresholds of its own": """
seen = []
def told(phase, info): seen.append(phase)
gc.callbacks.append(told); gc.set_threshold(50, 2, 2); train(); gc.callbacks.remove(told)
print(sorted(set(seen)), len(seen) > 1, gc.get_threshold(), gc.callbacks, gc.get_freeze_count(), train())
""",
    "an audit hook that prints what the training opens": """
opened, home = [], os.getcwd() + os.sep
sys.addaudithook(lambda event,
    args: opened.append(os.path.basename(str(args[0]))) if event == 'open' and home in str(args[0]) else None)
train(); torch.save(model, 'model.pt'); print(opened)
""",
    "an audit hook that forbids all but its own": """
home = os.getcwd()
def guard(event, args):
    writes = event == 'open' and args[2] & (os.O_WRONLY | os.O_RDWR)
    if (writes or event in ('os.mkdir', 'os.rename', 'socket.connect')) and home not in str(args[0]):
        raise PermissionError(event)
sys.addaudithook(guard); print(train(), train()); torch.save(model.state_dict(), home + '/w.pt')
print(len(os.listdir(home)))
""",
}
STRICT = {
    "warnings as errors, while it trains": "import warnings; warnings.simplefilter('error'); print(train(), train())\n",
    "an event loop that trains in a task": """
import asyncio
async def main():
    async def ticks():
        for _ in range(3): await asyncio.sleep(0)
        return 'ticked'
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y); optimizer.zero_grad(); loss.backward(); await asyncio.sleep(0)
        optimizer.step()
    return loss.item().hex(), await ticks(), len(asyncio.all_tasks())
print(asyncio.run(main(), debug=True))
""",
    "trainings in tasks that take turns": """
import asyncio
def made(): own = nn.Linear(4, 1); return own, torch.optim.SGD(own.parameters(), lr=0.1)
async def one(own, opt):
    for x, y in loader: own(x).sum().backward(); await asyncio.sleep(0); opt.step(); opt.zero_grad()
    return own.weight.sum().item().hex()
async def main(): return await asyncio.gather(*(one(*made()) for _ in range(3)))
print(asyncio.run(main()))
""",
    "a task that is cancelled within a step": """
import asyncio
async def one():
    try:
        for x, y in loader:
            model(x).sum().backward(); await asyncio.sleep(0.01); optimizer.step(); optimizer.zero_grad()
    except asyncio.CancelledError: print('cancelled'); raise
async def main():
    task = asyncio.create_task(one()); await asyncio.sleep(0.005); task.cancel()
    try: await task
    except asyncio.CancelledError: return 'gone'
print(asyncio.run(main()), train())
""",
    "training in threads of an executor": """
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(1) as pool: print(pool.submit(train).result(), pool.submit(train).result())
with concurrent.futures.ThreadPoolExecutor(1) as pool: print(list(pool.map(lambda _: train(), range(2))))
""",
    "a generator of steps that is closed early": """
def steps():
    try:
        for x, y in loader:
            loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); yield loss.item().hex()
    finally: print('closed')
made = steps(); print(next(made), next(made)); made.close(); print(list(steps())[-1])
try: made.throw(ValueError('in'))
except ValueError as error: print(error)
""",
    "contextvars over steps": """
import contextvars
step = contextvars.ContextVar('step', default=0)
for n, (x, y) in enumerate(loader):
    token = step.set(n); model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(step.get(), len(contextvars.copy_context()), contextvars.copy_context().run(train))
""",
    "recursion between steps near the limit": """
sys.setrecursionlimit(400)
def deep(n): return train() if n == 0 else deep(n - 1)
print(deep(50))
try: deep(380)
except RecursionError as error: print('too deep')
print(train())
""",
    "objects that raise in whatever is asked of them": """
class Bad:
    def __bool__(self): raise ZeroDivisionError
    __len__ = __iter__ = __getitem__ = __eq__ = __hash__ = __repr__ = __bool__
    def __getattr__(self, name): raise ZeroDivisionError
bad = Bad(); model.bad = bad; optimizer.bad = bad; loader.bad = bad; optimizer.param_groups[0]['bad'] = bad
class Net(nn.Module):
    def __init__(self): super().__init__(); self.inner = model
    def forward(self, x, other=None, **more): return self.inner(x)
net = Net()
for x, y in loader: loss = net(x, other=bad, more=bad).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(loss.item().hex())
""",
    "an integer, a string and a tensor that lie about their class": """
class Lie(torch.Tensor):
    __class__ = property(lambda self: dict)
class Two(int):
    def __eq__(self, other): raise ValueError
    __hash__ = int.__hash__
made = torch.utils.data.DataLoader(data, batch_size=Two(4))
for x, y in made:
    x = x.as_subclass(Lie); loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(float(loss).hex(), loss.__class__)
""",
}
EXITS = {
    "sys.exit in a model's forward hook": """
def leave(*_): print('leaves', flush=True); sys.exit(7)
model.register_forward_hook(leave); train()
""",
    "sys.exit in a backward hook": """
model[0].weight.register_hook(lambda grad: sys.exit(7)); train()
""",
    "SystemExit out of an optimizer's step hook": """
optimizer.register_step_post_hook(lambda *_: sys.exit(7)); train()
""",
    "KeyboardInterrupt out of a data set": """
class Set(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, n):
        if n == 6: raise KeyboardInterrupt
        return torch.ones(4), torch.ones(1)
try:
    for x, y in torch.utils.data.DataLoader(Set(), batch_size=2): model(x).sum().backward(); optimizer.step()
except KeyboardInterrupt: print('interrupted'); sys.exit(7)
""",
    "os._exit within a step, with text in the buffer": """
print('buffered', end=''); sys.stdout.flush(); print('lost'); model(data[0][0]).sum().backward(); os._exit(7)
""",
    "exit in a thread, and the main thread goes on": """
import threading
one = threading.Thread(target=lambda: (train(), sys.exit(3))); one.start(); one.join(); print(train()); sys.exit(7)
""",
    "atexit that trains once more": """
import atexit
atexit.register(lambda: print('at exit', train())); sys.exit(7)
""",
    "__del__ of a model at the interpreter's end": """
class Net(nn.Linear):
    def __del__(self): print('gone', self.weight.shape)
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
sys.exit(7)
""",
    "execv of itself within a step": """
if len(sys.argv) > 1: print('second', train()); sys.exit(7)
model(data[0][0]).sum().backward(); sys.stdout.flush(); os.execv(sys.executable, [sys.executable, __file__, 'again'])
""",
    "fork within a step, both go on": """
x, y = data[:4]; loss = model(x).sum(); sys.stdout.flush(); pid = os.fork()
loss.backward(); optimizer.step(); optimizer.zero_grad(); result = loss.item().hex()
if pid == 0: print('child', result, flush=True); os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), result, train()); sys.exit(7)
""",
    "a double fork: the grandchild trains on and leaves a file": """
import time
sys.stdout.flush()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: open('left', 'w').write(train()); os._exit(0)
    os._exit(0)
os.wait(); since = time.time()
while not os.path.exists('left') or not open('left').read():
    if time.time() > since + 60: break
    time.sleep(0.05)
print(open('left').read()); sys.exit(7)
""",
}
PARALLEL = {
    "forkserver with a training in each": """
import multiprocessing
def work(n): return train()
if __name__ == '__main__':
    with multiprocessing.get_context('forkserver').Pool(2) as pool: print(sorted(set(pool.map(work, range(2)))))
""",
    "a loader with workers by spawn and forkserver": """
class Set(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, n): return torch.full((4,), float(n)), torch.ones(1)
if __name__ == '__main__':
    for kind in ('spawn', 'forkserver', 'fork'):
        for x, y in torch.utils.data.DataLoader(Set(), batch_size=4, num_workers=1, multiprocessing_context=kind):
            loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
            print(kind, x.sum().item(), loss.item().hex())
""",
    "torch.multiprocessing: tensors through a queue, both ways": """
import torch.multiprocessing as multiprocessing
multiprocessing.set_sharing_strategy('file_system')
def work(given, answers):
    for _ in range(3): answers.put(given.get() * 2)
if __name__ == '__main__':
    context = multiprocessing.get_context('fork'); given, answers = context.SimpleQueue(), context.SimpleQueue()
    one = context.Process(target=work, args=(given, answers)); one.start()
    for x, y in list(loader)[:3]: given.put(x); print(answers.get().sum().item().hex())
    one.join(); print(one.exitcode, train())
""",
    "a worker that dies in a loader": """
class Set(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, n):
        if n == 4: os._exit(3)
        return torch.ones(4), torch.ones(1)
sys.unraisablehook = lambda raised: None  # whether its end is heard once more is a race
try:
    for x, y in torch.utils.data.DataLoader(Set(), batch_size=2, num_workers=1):
        model(x).sum().backward(); optimizer.step()
except (RuntimeError, EOFError, OSError): print('gone')
""",
    "checkpointing of both kinds, in threads": """
import threading
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
def work():
    for x, y in loader:
        for reentrant in (False, True):
            loss = checkpoint(model, x.requires_grad_(), use_reentrant=reentrant).sum(); loss.backward()
        checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward(); optimizer.step()
        optimizer.zero_grad()
    print(loss.item().hex())
work(); one = threading.Thread(target=work); one.start(); one.join()
""",
    "scripted, traced and exported models that train": """
for made in (torch.jit.script(model), torch.jit.trace(model, torch.ones(4, 4)), torch.export.export(model,
    (torch.ones(4, 4),)).module()):
    own = torch.optim.SGD(made.parameters(), lr=0.01)
    for x, y in loader: loss = made(x).pow(2).sum(); loss.backward(); own.step(); own.zero_grad()
    print(loss.item().hex(), type(made).__name__)
""",
}
PROBES: tuple[Program, ...] = (
    *probes("tools", TOOLS),
    *probes("identity", IDENTITY),
    *probes("replaced", REPLACED),
    *probes("strict", STRICT),
    *probes("ends", EXITS, ends=7),
    *probes("parallel", PARALLEL),
    *probes("strict", {"python -X dev with a training": "print(train())\n"}, command=(PYTHON, "-X", "dev", "train.py")),
    *probes(
        "strict", {"python -OO with a training": "print(train(), train.__doc__)\n"}, command=(PYTHON, "-OO", "train.py")
    ),
    *probes(
        "strict",
        {"python -X faulthandler": "import faulthandler as f; print(train(), f.is_enabled())\n"},
        command=(PYTHON, "-X", "faulthandler", "train.py"),
    ),
    *probes("strict", {"python -bb -u": "print(train())\n"}, command=(PYTHON, "-bb", "-u", "train.py")),
)
