"""Around a training: random numbers, errors, warnings, signals, how torch is imported, and torch that is no torch."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TRAINED, probes

RANDOM = {
    "random states after a training": """
import random, numpy
random.seed(1); numpy.random.seed(2); torch.manual_seed(3); print(train(), torch.initial_seed())
print(
    random.random(),
    numpy.random.rand(),
    torch.rand(1).item(),
    torch.seed() != 0,
    hash(torch.get_rng_state().numpy().tobytes()[:0]),
)
""",
    "fork_rng and generators between steps": """
own = torch.Generator().manual_seed(5)
for x, y in loader:
    with torch.random.fork_rng(): torch.manual_seed(1); noise = torch.rand(1)
    loss = model(x + noise + torch.rand(4, 4, generator=own)).sum(); loss.backward(); optimizer.step()
    optimizer.zero_grad(); print(loss.item().hex(), torch.rand(1).item())
""",
    "deterministic algorithms": """
torch.use_deterministic_algorithms(True); torch.utils.deterministic.fill_uninitialized_memory = True
print(train(), torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode())
print(torch.empty(2), torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision())
torch.set_deterministic_debug_mode('warn'); print(train())
""",
    "dropout's masks over two epochs": """
model.append(nn.Dropout(0.5)); torch.manual_seed(4)
for _ in range(2): print([nn.functional.mse_loss(model(x), y).item().hex() for x, y in loader], train())
""",
    "a random sampler's own seed": """
made = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True); torch.manual_seed(6); one = iter(made)
print(torch.rand(1), one._base_seed); two = iter(made); print(torch.rand(1), two._base_seed, next(one)[0].sum())
for x, y in made: model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(torch.rand(1))
""",
}
ERRORS = {
    "an error in a model's forward, printed": """
import traceback
class Bad(nn.Module):
    def __init__(self): super().__init__(); self.inner = model; self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls in (1, 2, 6): raise ValueError('call %d' % self.calls)
        return self.inner(x)
net = Bad(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    try: net(x).sum().backward(); own.step(); own.zero_grad()
    except ValueError: traceback.print_exc(file=sys.stdout)
""",
    "shapes that do not fit, printed": """
import traceback
for n, (x, y) in enumerate(loader):
    try: model(x if n != 5 else x.T[:3]).sum().backward(); optimizer.step(); optimizer.zero_grad()
    except RuntimeError: traceback.print_exc()
nn.functional.mse_loss(model(x), torch.ones(3))
""",
    "an error in backward, printed": """
import traceback
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): raise ValueError('in backward')
for n, (x, y) in enumerate(loader):
    try: out = model(x); (Bad.apply(out) if n > 4 else out).sum().backward(); optimizer.step(); optimizer.zero_grad()
    except ValueError: traceback.print_exc()
try: torch.autograd.grad(Bad.apply(model(x)).sum(), list(model.parameters()))
except ValueError: traceback.print_exc()
class Bad:
    def __reduce__(self): raise LookupError('not to be saved')
try: torch.save(Bad(), 'absent')
except LookupError: traceback.print_exc()
os.unlink('absent')
""",
    "an exception with notes, causes and groups": """
import traceback
def step(n, x):
    try: model(x if n != 5 else x.T[:3])
    except RuntimeError as error:
        error.add_note('the note'); raise ExceptionGroup('several', [error, ValueError(n)]) from error
for n, (x, y) in enumerate(loader):
    try: step(n, x)
    except ExceptionGroup as error: print(''.join(traceback.format_exception(error)))
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
""",
    "an interrupt in backward": """
import signal
def stop(g): signal.raise_signal(signal.SIGINT); return g
for n, (x, y) in enumerate(loader):
    handle = model[0].weight.register_hook(stop) if n == 5 else None
    try: model(x).sum().backward()
    except KeyboardInterrupt as error: print('interrupted', n, repr(error))
    if handle: handle.remove()
    optimizer.step(); optimizer.zero_grad()
print(train())
""",
    "signals' handlers in every part of a step": """
import signal
seen = []
def handler(number, frame): seen.append(number)
signal.signal(signal.SIGUSR1, handler); signal.setitimer(signal.ITIMER_REAL, 0)
fire = lambda *a: signal.raise_signal(signal.SIGUSR1)
model.register_forward_hook(lambda m, a, o: fire()); model[0].weight.register_hook(lambda g: fire())
optimizer.register_step_post_hook(fire)
print(train(), len(seen))
""",
    "sys.exit in a hook": """
model[0].weight.register_hook(lambda g: sys.exit('from the hook') if done else None); done = False; print(train())
done = True
try: train()
except SystemExit as error: print(repr(error), error.__traceback__ is not None)
done = False; print(train())
""",
    "a generator that is closed in a step": """
def steps():
    for x, y in loader:
        try: loss = model(x).sum(); loss.backward(); yield loss.item().hex(); optimizer.step()
        finally: optimizer.zero_grad(); print('finally', sys.exc_info()[0])
one = steps(); print(next(one), next(one)); one.close(); two = steps(); print(next(two)); del two; print(train())
""",
    "an uncaught error's hook of the program": """
def hook(kind, error, trace):
    names = []
    while trace: names.append(trace.tb_frame.f_code.co_name); trace = trace.tb_next
    print(kind.__name__, error, names, [n for n in names if n == 'called'])
sys.excepthook = hook; print(sys.__excepthook__.__name__, train())
import threading; thread = threading.Thread(target=lambda: model(torch.ones(3, 3)))
threading.excepthook = lambda a: print(a.exc_type.__name__); thread.start(); thread.join()
try: model(torch.ones(3, 3))
except RuntimeError as error: hook(type(error), str(error)[:30], error.__traceback__)
""",
    "consoles of generated code, with a write of their own": """
import code
class Console(code.InteractiveConsole):
    def write(self, text): said.append(text)
said = []; console = Console({'model': model, 'torch': torch}); print(train())
for line in ('1 / 0', 'int("a")', 'model(torch.ones(3, 3))', 'print(', ')'): console.push(line)
print(sys.excepthook is sys.__excepthook__, [text.splitlines()[-1] for text in said])
import pickle; print(pickle.dumps(sys.__excepthook__)); sys.excepthook(KeyError, KeyError(1), None)
""",
    "torch's C++ stack traces and log levels": """
try: torch.ones(2) @ torch.ones(3)
except RuntimeError as error: print(str(error).splitlines()[0], len(str(error).splitlines()) > 3)
print(train())
""",
}
WARNED = {
    "warnings once for each place": """
import warnings
def loss_of(x): return nn.functional.mse_loss(model(x), torch.ones(4))
for x, y in loader: loss_of(x).backward(); optimizer.step(); optimizer.zero_grad(); warnings.warn('in the loop')
warnings.simplefilter('always')
for x, y in loader: loss_of(x).backward(); optimizer.step(); optimizer.zero_grad()
print(sorted(k[2] for k in globals().get('__warningregistry__', {}) if type(k) is tuple))
""",
    "warnings of a model, by depth": """
import warnings
class Net(nn.Linear):
    def forward(self, x):
        for level in (1, 2, 4, 5): warnings.warn('level %d' % level, stacklevel=level)
        return super().forward(x)
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
""",
    "warnings of data sets, closures, schedulers and saving": """
import warnings; warnings.simplefilter('always')
class Warns(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, n): warnings.warn('row', stacklevel=6); return torch.ones(4)
for x in torch.utils.data.DataLoader(Warns(), batch_size=4):
    def closure(): warnings.warn('closure', stacklevel=4); model(x).sum().backward()
    optimizer.step(closure)
class State:
    def __reduce__(self): warnings.warn('saved', stacklevel=3); return int, (1,)
torch.save(State(), 'state.pt'); model[0].weight.register_hook(lambda g: warnings.warn('hook', stacklevel=4))
model(x).sum().backward()
""",
    "warnings as errors": """
import warnings; warnings.simplefilter('error')
for n, (x, y) in enumerate(loader):
    try:
        nn.functional.mse_loss(model(x), y if n % 2 else torch.ones(4)).backward()
        optimizer.step(); optimizer.zero_grad(); print(n)
    except UserWarning as error: print(n, str(error)[:40])
""",
    "warnings through logging": """
import logging, warnings
logging.basicConfig(format='%(name)s %(levelname)s %(module)s %(funcName)s %(message).60s', stream=sys.stdout)
logging.captureWarnings(True); logger = logging.getLogger('own')
class Net(nn.Linear):
    def forward(self, x):
        logger.warning('called', stacklevel=1); logger.warning('deeper', stacklevel=2); warnings.warn('by warnings')
        return super().forward(x)
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
""",
}
NO_TORCH = {
    "a program's own torch.py": """
import sys; sys.path.insert(0, 'own')
import torch
print(
    torch.__file__.rpartition('/')[2],
    torch.VALUE,
    sorted(k for k in vars(torch) if not k.startswith('__')),
    torch.__loader__.__class__.__name__,
    torch.__spec__.origin.rpartition('/')[2],
)
""",
    "a torch that cannot be imported": """
import sys; sys.path.insert(0, 'broken')
for _ in range(2):
    try: import torch
    except ImportError as error: print(repr(error), 'torch' in sys.modules, error.name)
import traceback
try: import torch
except ImportError: print([(f.name, f.lineno) for f in traceback.extract_tb(sys.exc_info()[2])])
""",
    "names of torch without a torch": """
import sys, types; sys.modules['torch'] = torch = types.ModuleType('torch'); torch.Tensor = int; import torch as again
print(again is torch, vars(torch)['Tensor'])
sys.modules['transformers'] = None
try: import transformers
except ImportError as error: print(error)
""",
}
IMPORTS = {
    "warnings of modules while they are imported": """
import sys, warnings; warnings.simplefilter('always'); sys.path.insert(0, 'own')
import peft
def later(): import timm
later()
import torch
""",
    "torch in a function, a thread and an exec": """
import threading
def late(): import torch; return torch.ones(1)
thread = threading.Thread(target=lambda: print(late(), threading.current_thread().name)); thread.start(); thread.join()
exec('import torch as t; print(t.zeros(1))'); print(__import__('torch').nn.Linear(1, 1).weight.shape)
""",
    "torch loaded by importlib, its spec and loader": """
import importlib, importlib.util, sys
spec = importlib.util.find_spec('torch')
print(type(spec.loader).__name__, spec.name, 'torch' in sys.modules, spec.has_location)
torch = importlib.import_module('torch')
print(
    type(torch.__loader__).__name__,
    torch.__spec__.loader is torch.__loader__,
    sorted(vars(torch.__loader__)),
    torch.__spec__.origin == spec.origin,
    type(torch).__name__,
)
import pkgutil
print(
    len(list(pkgutil.iter_modules(torch.__path__))) > 20,
    importlib.resources.files('torch').joinpath('version.py').is_file(),
)
""",
    "modules of torch reloaded": """
import importlib, sys, torch
from torch import nn
net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for name in (
    'torch.optim.lr_scheduler',
    'torch.utils.data.dataloader',
    'torch.nn.utils.clip_grad',
    'torch.optim.optimizer',
):
    module = importlib.reload(sys.modules[name]); print(name, module is sys.modules[name])
for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step(); print(net.weight.grad.tolist()); own.zero_grad()
print([b.tolist() for b in torch.utils.data.dataloader.DataLoader(torch.ones(2, 2))])
""",
    "what an import of torch changes": """
import builtins, gc, os, signal, sys, threading, warnings
def state():
    hooks = sys.excepthook, sys.displayhook, builtins.__import__, signal.getsignal(signal.SIGINT)
    limits = sys.getswitchinterval(), sys.getrecursionlimit(), gc.get_threshold()
    return *hooks, dict(os.environ), *limits, len(warnings.filters), len(gc.callbacks), os.getcwd()
before = state()
import torch
after = state()
print(
    [a == b for a, b in zip(before, after)][1:],
    sys.excepthook.__name__,
    sys.stdout.line_buffering,
    threading.active_count() >= 1,
    faulthandler.is_enabled() if (faulthandler := __import__('faulthandler')) else 0,
)
""",
    "modules of Python that training loads": """
import sys, torch
net = torch.nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.ones(12, 2), batch_size=2):
    net(x).sum().backward(); own.step(); own.zero_grad()
heavy = (
    'sqlite3',
    'http',
    'email',
    'asyncio',
    'xml',
    'ssl',
    'curses',
    'tkinter',
    'unittest',
    'pydoc',
    'distutils',
    'lzma',
    'numpy',
    'pandas',
    'zmq',
    'psutil',
    'textual',
    'monitor',
)
print([name for name in heavy if name in sys.modules])
""",
    "the hub's folder and torch's home": """
import os, torch
print(torch.hub.get_dir().startswith(os.environ['HOME']), os.path.exists(torch.hub.get_dir()))
net = torch.nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step()
print(sorted(os.listdir(os.environ['HOME'])), sorted(os.listdir('.')), torch.hub._get_torch_home().count('torch'))
""",
    "a finder of the program on sys.meta_path": """
import sys
class Logged:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in ('torch', 'torch.optim', 'torch.utils.data.dataloader', 'transformers'): print('asked', name)
sys.meta_path.insert(0, Logged)
print([f.__name__ if isinstance(f, type) else type(f).__name__ for f in sys.meta_path][:1])
import torch; net = torch.nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step()
""",
    "vmap, scripted functions and PYTORCH_JIT=0": """
import torch
@torch.jit.script
def double(x: torch.Tensor): return x * 2
net = torch.nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1); torch.nn.init.ones_(net.weight)
torch.nn.init.zeros_(net.bias)
for _ in range(5):
    double(net(torch.ones(1, 2))).sum().backward(); own.step(); own.zero_grad()
    print(net.weight.tolist(), type(double).__name__, torch.vmap(double)(torch.ones(2)))
""",
}

WARNS = "import warnings\nfor level in (1, 2, 3): warnings.warn(f'level {level}', stacklevel=level)\n"

PROBES = (
    *probes("random", RANDOM),
    *probes("errors", ERRORS, env={"TORCH_SHOW_CPP_STACKTRACES": "0"}),
    *probes("warnings", WARNED),
    *probes(
        "imports",
        NO_TORCH,
        before="",
        files={
            "own/torch.py": "VALUE = 5\n",
            "broken/torch.py": "import os\nraise ImportError('broken', name='deep')\n",
        },
    ),
    *probes("imports", IMPORTS, before="", files={"own/peft.py": WARNS, "own/timm/__init__.py": WARNS}),
    *probes(
        "imports",
        {"a training with PYTORCH_JIT=0": "print(train(), torch.jit.script(model) is model)"},
        before=TRAINED,
        env={"PYTORCH_JIT": "0"},
    ),
)
