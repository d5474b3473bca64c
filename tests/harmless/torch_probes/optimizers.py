"""Optimizers, schedulers, gradient scaling, averaged weights."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TORCH, probes

TEXTS = {
    "every class of torch.optim": """
import inspect
skipped = {'Optimizer', 'LBFGS', 'SparseAdam', 'Muon'}
for name, kind in sorted(vars(torch.optim).items()):
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name not in skipped:
        optimizer = kind(model.parameters(), lr=1e-3)
        print(name, train(), sorted(optimizer.state[model[0].weight]), optimizer.step.__qualname__)
""",
    "the text of every optimizer": """
import inspect
for name, kind in sorted(vars(torch.optim).items()):
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
        print(
            name,
            inspect.signature(kind),
            inspect.signature(kind.step),
            len(inspect.getsource(kind.__init__)),
            kind.step.__module__,
        )
print(inspect.signature(torch.optim.Optimizer.__init__), inspect.getsource(torch.optim.Optimizer.__init__)[:60])
""",
    "LBFGS and its closure": """
calls = []
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, line_search_fn='strong_wolfe')
for x, y in loader:
    def closure():
        calls.append(sys._getframe(1).f_code.co_name); optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y); loss.backward(); return loss
    print(optimizer.step(closure).item().hex(), len(calls), set(calls)); calls.clear()
""",
    "a closure that raises, and one that returns nothing": """
def closure(): optimizer.zero_grad(); model(x).sum().backward()
def fails(): raise LookupError('in the closure')
for n, (x, y) in enumerate(loader):
    try: print(optimizer.step(fails if n == 4 else closure))
    except LookupError as error: print(n, error)
print(train())
""",
    "foreach, fused, capturable and differentiable": """
for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW):
    for flags in ({'foreach': True}, {'foreach': False}, {'fused': True}, {'maximize': True}):
        optimizer = kind(model.parameters(), lr=1e-3, **flags)
        print(kind.__name__, flags, train(), optimizer.defaults['foreach'])
for flags in ({'foreach': True, 'fused': True}, {'capturable': True}):
    try: torch.optim.Adam(model.parameters(), **flags); print('made')
    except RuntimeError as error: print(error)
""",
    "step hooks of one optimizer and of all, in order": """
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
seen = []
optimizer.register_step_pre_hook(lambda o, a, k: seen.append(('own pre', len(a), sorted(k))))
optimizer.register_step_post_hook(lambda o, a, k: seen.append(('own post', len(a))))
handle = register_optimizer_step_pre_hook(lambda o, a, k: seen.append(('all pre', o is optimizer)))
register_optimizer_step_post_hook(lambda o, a, k: seen.append(('all post', type(o).__name__)))
print(train(), len(seen), seen[:8]); handle.remove(); seen.clear(); print(train(), seen[:4])
""",
    "a pre hook that changes the arguments": """
def change(o, args, kwargs): return (args[0], lambda: torch.tensor(7.0)), kwargs
handle = optimizer.register_step_pre_hook(change)
for x, y in loader: model(x).sum().backward(); print(optimizer.step()); optimizer.zero_grad()
handle.remove()
def wrong(o, args, kwargs): return 5
optimizer.register_step_pre_hook(wrong)
try: optimizer.step()
except RuntimeError as error: print(str(error).partition(' at 0x')[0])
""",
    "ids of hook handles": """
from torch.utils.hooks import RemovableHandle
one = optimizer.register_step_pre_hook(lambda *a: None); two = model.register_forward_hook(lambda *a: None)
three = model[0].weight.register_hook(lambda g: None)
print(two.id - one.id, three.id - two.id, train()); print(model.register_forward_hook(print).id - three.id)
""",
    "groups with their own values, and one more while training": """
optimizer = torch.optim.SGD(
    [{'params': model[0].parameters(), 'lr': 0.01, 'name': 'first'}, {'params': [model[2].weight]}], lr=0.1
)
print(train(), [{k: v for k, v in g.items() if k != 'params'} for g in optimizer.param_groups][0]['name'])
optimizer.add_param_group({'params': model[2].bias, 'momentum': 0.5})
print(train(), len(optimizer.param_groups), optimizer)
try: optimizer.add_param_group({'params': model[2].bias})
except ValueError as error: print(error)
""",
    "named parameters": """
optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
print(train(), optimizer.state_dict()['param_groups'][0]['param_names'])
try: torch.optim.SGD([('a', model[0].weight), model[0].bias], lr=0.1)
except Exception as error: print(type(error).__name__, error)
""",
    "what an optimizer refuses": """
for given in (
    [],
    model[0].weight,
    [3],
    [torch.ones(1) * model[0].weight.sum()],
    [model[0].weight, model[0].weight],
    {model[0].weight},
):
    try: torch.optim.SGD(given, lr=0.1); print('made')
    except Exception as error: print(type(error).__name__, error)
for lr in (-1.0, 'fast'):
    try: torch.optim.SGD(model.parameters(), lr=lr)
    except Exception as error: print(type(error).__name__, error)
""",
    "an optimizer whose step has another signature": """
class Own(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1): super().__init__(params, dict(lr=lr))
    def step(self, factor, *, twice=False):
        '''The doc.'''
        for g in self.param_groups:
            for p in g['params']: p.data.add_(p.grad, alpha=-g['lr'] * factor * (2 if twice else 1))
        return 'stepped'
import inspect
optimizer = Own(model.parameters())
print(inspect.signature(optimizer.step), Own.step.__doc__, Own.step.__name__, hasattr(Own.step, 'hooked'))
for x, y in loader: model(x).sum().backward(); print(optimizer.step(0.5, twice=True)); optimizer.zero_grad()
try: optimizer.step()
except TypeError as error: print(error)
""",
    "an optimizer that never calls torch's __init__": """
class Bare(torch.optim.Optimizer):
    def __init__(self, params):
        self.params = list(params); self.param_groups = [{'params': self.params}]; self.state = {}
    def step(self):
        with torch.no_grad():
            for p in self.params: p -= 0.1 * p.grad
    def zero_grad(self):
        for p in self.params: p.grad = None
optimizer = Bare(model.parameters()); print(train())
print(sorted(vars(optimizer)), optimizer.__class__.__mro__[1].__name__)
""",
    "an optimizer that is no torch optimizer": """
class Plain:
    def __init__(self, params): self.params = list(params)
    def step(self):
        with torch.no_grad():
            for p in self.params: p -= 0.1 * p.grad
    def zero_grad(self):
        for p in self.params: p.grad = None
optimizer = Plain(model.parameters()); print(train()); optimizer = torch.optim.Adam(model.parameters()); print(train())
""",
    "_step_count, _opt_called and __wrapped__": """
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
print(
    optimizer.step.__name__,
    hasattr(optimizer.step, '__wrapped__'),
    hasattr(optimizer.step, '_wrapped_by_lr_sched'),
    vars(optimizer).get('_opt_called'),
)
print(
    train(),
    scheduler._step_count,
    optimizer._opt_called,
    type(optimizer.step).__name__,
    type(optimizer).step.hooked,
    type(optimizer).step.__wrapped__.__name__,
)
scheduler.step()
print(scheduler._step_count, scheduler.get_last_lr(), sorted(vars(scheduler)), sorted(vars(optimizer)))
""",
    "schedulers' warnings": """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1); scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scheduler.step(); train(); scheduler.step(3); scheduler.get_lr()
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1); optimizer.step = lambda: None; late.step()
for one in caught: print(one.category.__name__, os.path.basename(one.filename), one.lineno, str(one.message)[:70])
""",
    "every scheduler": """
S = torch.optim.lr_scheduler
made = [lambda o: S.CosineAnnealingLR(o, 5), lambda o: S.OneCycleLR(o, 0.2, total_steps=30),
    lambda o: S.CyclicLR(o, 0.01, 0.2, cycle_momentum=False), lambda o: S.LambdaLR(o, lambda n: 0.9 ** n),
    lambda o: S.MultiplicativeLR(o, lambda n: 0.9), lambda o: S.PolynomialLR(o, 5),
    lambda o: S.CosineAnnealingWarmRestarts(o, 2)]
for make in made:
    scheduler = make(optimizer); rates = []
    for x, y in loader:
        model(x).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad(); scheduler.step()
        rates.append(scheduler.get_last_lr()[0].hex() if isinstance(scheduler.get_last_lr()[0], float) else 0)
    print(type(scheduler).__name__, rates); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    "chained and sequential schedulers, and plateaus": """
S = torch.optim.lr_scheduler
one = S.ChainedScheduler([S.ConstantLR(optimizer, 0.1, 2), S.ExponentialLR(optimizer, 0.9)])
for _ in range(3): print(train(), one.get_last_lr()); one.step()
two = S.SequentialLR(optimizer, [S.LinearLR(optimizer), S.StepLR(optimizer, 1)], [2])
for _ in range(4): train(); two.step(); print(two.get_last_lr())
three = S.ReduceLROnPlateau(optimizer, patience=0)
for loss in (1, 2, 3, 4): train(); three.step(loss); print(three.get_last_lr(), three.num_bad_epochs)
""",
    "an optimizer copied and pickled between steps": """
import copy, pickle
for n, (x, y) in enumerate(loader):
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
    twin = copy.deepcopy(optimizer); again = pickle.loads(pickle.dumps(optimizer))
    print(sorted(vars(twin)), sorted(vars(again)), len(pickle.dumps(optimizer)))
    twin.load_state_dict(optimizer.state_dict())
    print(twin.param_groups[0]['params'][0] is model[0].weight, len(again.state))
    if n == 3: optimizer = pickle.loads(pickle.dumps((model, optimizer))); model, optimizer = optimizer
print(train())
""",
    "__setstate__ and load hooks of an optimizer": """
class Own(torch.optim.SGD):
    def __setstate__(self, state): print('setstate', sorted(state)); super().__setstate__(state)
    def __getstate__(self): print('getstate'); return super().__getstate__()
import copy
optimizer = Own(model.parameters(), lr=0.1)
optimizer.register_state_dict_pre_hook(lambda o: print('state pre'))
optimizer.register_state_dict_post_hook(lambda o, s: print('state post', sorted(s)))
optimizer.register_load_state_dict_pre_hook(lambda o, s: print('load pre'))
optimizer.register_load_state_dict_post_hook(lambda o: print('load post'))
print(train()); optimizer.load_state_dict(optimizer.state_dict()); copy.copy(optimizer); print(train())
""",
    "profile hooks of an optimizer's step": """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile: print(train())
print(
    sorted((e.key, e.count) for e in profile.key_averages() if 'ptimizer' in e.key),
    torch.optim.SGD.profile_hook_step.__name__,
)
optimizer.zero_grad = None; print(optimizer._zero_grad_profile_name)
""",
    "two optimizers on the same weights": """
other = torch.optim.Adam(model.parameters(), lr=1e-3)
for n, (x, y) in enumerate(loader):
    loss = model(x).pow(2).mean(); loss.backward(); optimizer.step(); other.step()
    if n % 2: optimizer.zero_grad()
    print(loss.item().hex(), len(other.state))
""",
    "an optimizer made within a step": """
for n, (x, y) in enumerate(loader):
    loss = model(x).pow(2).mean(); loss.backward(); fresh = torch.optim.Adagrad(model.parameters(), lr=0.01)
    fresh.step(); fresh.zero_grad()
    print(loss.item().hex(), len(fresh.state), gc.collect() >= 0)
""",
    "steps fused into the backward pass": """
each = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
def step(p): each[p].step(); each[p].zero_grad()
for p in model.parameters(): p.register_post_accumulate_grad_hook(step)
for x, y in loader:
    loss = model(x).pow(2).mean(); loss.backward(); print(loss.item().hex(), [p.grad for p in model.parameters()])
""",
    "GradScaler with infinities and without": """
for enabled in (True, False):
    scaler = torch.amp.GradScaler('cpu', init_scale=8.0, growth_interval=3, enabled=enabled)
    for n, (x, y) in enumerate(loader):
        loss = model(x * (float('inf') if n == 4 else 1)).pow(2).mean(); optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer); norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print(
            scaler.step(optimizer),
            scaler.update(),
            scaler.get_scale(),
            scaler.state_dict() if n == 7 else '',
            bool(norm.isfinite()) or n == 4,
        )
print(train())
""",
    "what GradScaler refuses": """
scaler = torch.amp.GradScaler('cpu'); model(x := data[0][0]).sum().backward()
for call in (
    lambda: scaler.step(optimizer),
    lambda: scaler.update(),
    lambda: scaler.unscale_(optimizer),
    lambda: scaler.step(optimizer, closure=print),
):
    try: print(call())
    except Exception as error: print(type(error).__name__, str(error)[:90])
import copy, inspect, pickle
print(
    inspect.signature(scaler.step),
    scaler.step.__doc__[:40],
    len(pickle.dumps(torch.amp.GradScaler('cpu'))),
    type(copy.copy(scaler)).__name__,
)
""",
    "averaged weights": """
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
mean, ema = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
rate = SWALR(optimizer, 0.05)
for x, y in loader:
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad(); mean.update_parameters(model)
    ema.update_parameters(model); rate.step()
    print(mean(x).sum().item().hex(), ema(x).sum().item().hex(), mean.n_averaged)
update_bn(loader, mean); print(sorted(mean.state_dict()))
""",
    "zero_grad and held gradients": """
held = []
for n, (x, y) in enumerate(loader):
    model(x).sum().backward(); held.append(model[0].bias.grad); optimizer.step()
    optimizer.zero_grad(set_to_none=n % 2 == 0)
    print(model[0].bias.grad, held[-1].sum().item().hex(), sum(a is b for a in held for b in held))
""",
    "gradient clipping and its errors": """
for n, (x, y) in enumerate(loader):
    (model(x) * (float('nan') if n == 4 else 1)).sum().backward()
    try:
        print(nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True))
        print(nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    except RuntimeError as error: print(error); optimizer.zero_grad(); continue
    nn.utils.clip_grad_value_(model.parameters(), 0.1); optimizer.step(); optimizer.zero_grad()
    print(nn.utils.parameters_to_vector(model.parameters()).sum().item().hex())
""",
    "sparse gradients": """
table = nn.Embedding(10, 4, sparse=True); optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
for n in range(8):
    loss = table(torch.tensor([n, n, 1])).pow(2).sum(); loss.backward()
    print(table.weight.grad.coalesce().indices().tolist(), loss.item().hex()); optimizer.step(); optimizer.zero_grad()
""",
    "accumulated gradients with a rest": """
for n, (x, y) in enumerate(loader):
    loss = model(x).pow(2).mean() / 3; loss.backward()
    if n % 3 == 2: optimizer.step(); optimizer.zero_grad()
    print(loss.item().hex(), model[0].weight.grad is None)
optimizer.step(); print(train())
""",
    "a learning rate that is a tensor": """
rate = torch.tensor(0.1); optimizer = torch.optim.Adam(model.parameters(), lr=rate, foreach=False)
print(train(), rate._version); optimizer.param_groups[0]['lr'].mul_(0.5)
print(train(), rate, optimizer.state_dict()['param_groups'][0]['lr'] is rate)
""",
    "an error in an optimizer's step": """
class Broken(torch.optim.SGD):
    count = 0
    def step(self, closure=None):
        self.count += 1
        if self.count == 4: raise ArithmeticError('fourth')
        return super().step(closure)
optimizer = Broken(model.parameters(), lr=0.1)
for x, y in loader:
    loss = model(x).sum(); loss.backward()
    try: optimizer.step()
    except ArithmeticError as error:
        trace = error.__traceback__; print(repr(error)); names = []
        while trace: names.append(trace.tb_frame.f_code.co_name); trace = trace.tb_next
        print(names)
    optimizer.zero_grad(); print(loss.item().hex())
""",
}
IMPORTED_FIRST = {
    "Optimizer.step replaced by the program": """
step = torch.optim.SGD.step; names = []
def ours(self, *args, **kwargs): names.append(type(self).__name__); return step(self, *args, **kwargs)
torch.optim.SGD.step = ours; net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step(); own.zero_grad()
torch.optim.SGD.step = step; own = torch.optim.SGD(net.parameters(), lr=0.1); own.step()
print(names, torch.optim.SGD.step.__qualname__, net.weight.tolist())
""",
    "Optimizer.__init__ replaced by the program": """
init = torch.optim.Optimizer.__init__; print(init.__qualname__, init.__module__, init.__defaults__, init.__kwdefaults__)
def ours(self, params, defaults): print('init', sorted(defaults)); init(self, params, defaults)
torch.optim.Optimizer.__init__ = ours; net = nn.Linear(2, 1); own = torch.optim.Adam(net.parameters())
for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step(); own.zero_grad()
torch.optim.Optimizer.__init__ = init; torch.optim.SGD(net.parameters(), lr=0.1); print(net.weight.tolist())
""",
    "global step hooks as torch keeps them": """
import torch.optim.optimizer as O
module = sys.modules['torch.optim.optimizer']
print(module._global_optimizer_pre_hooks.__class__.__name__, module.__all__)
handle = module.register_optimizer_step_pre_hook(lambda *a: None); handle.remove(); print(handle.id >= 0)
""",
}

PROBES = (*probes("optimizers", TEXTS), *probes("optimizers", IMPORTED_FIRST, before=TORCH))
