"""Modules: hooks, calls that a program replaces, odd classes, copies, state."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TORCH, probes

TEXTS = {
    "global module hooks and their order": """
from torch.nn.modules import module as M
seen = []
handles = [
    M.register_module_forward_pre_hook(lambda m, a: seen.append(('pre', type(m).__name__))),
    M.register_module_forward_hook(lambda m, a, o: seen.append(('forward', type(m).__name__))),
    M.register_module_full_backward_pre_hook(lambda m, g: seen.append(('back pre', type(m).__name__))),
    M.register_module_full_backward_hook(lambda m, i, o: seen.append(('back', type(m).__name__)))]
for x, y in loader:
    x.requires_grad_(); model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(len(seen), seen[:12], [h.id for h in handles])
for handle in handles: handle.remove()
print(train(), len(seen))
""",
    "module registration hooks": """
from torch.nn.modules import module as M
handles = [M.register_module_module_registration_hook(lambda m, n, s: print('module', type(m).__name__, n)),
    M.register_module_parameter_registration_hook(lambda m, n, p: print('parameter', type(m).__name__, n)),
    M.register_module_buffer_registration_hook(lambda m, n, b: print('buffer', type(m).__name__, n))]
model.append(nn.BatchNorm1d(1)); optimizer.add_param_group({'params': model[3].parameters()}); print(train())
""",
    "hooks with kwargs, always_call and prepend": """
class Net(nn.Module):
    def __init__(self): super().__init__(); self.inner = model
    def forward(self, x, scale=1.0):
        if scale < 0: raise ValueError('negative')
        return self.inner(x) * scale
net = Net(); own = torch.optim.SGD(net.parameters(), lr=0.1)
net.register_forward_pre_hook(lambda m, a, k: (a, {**k, 'scale': k.get('scale', 1.0) * 2}), with_kwargs=True)
net.register_forward_hook(
    lambda m, a, k, o: print('first', k, None if o is None else tuple(o.shape)), with_kwargs=True, always_call=True
)
net.register_forward_hook(lambda m, a, o: print('prepended'), prepend=True)
for n, (x, y) in enumerate(loader):
    try: net(x, scale=-1.0 if n == 5 else 0.5).sum().backward(); own.step(); own.zero_grad()
    except ValueError as error: print(repr(error))
""",
    "a forward hook that replaces the output": """
model.register_forward_hook(lambda m, a, o: o * 0 + 3); model[0].register_forward_pre_hook(lambda m, a: (a[0] + 1,))
for x, y in loader:
    out = model(x); out.sum().backward(); optimizer.step(); optimizer.zero_grad(); print(out.tolist())
""",
    "__call__ of the program's own class": """
class Net(nn.Sequential):
    calls = 0
    def __call__(self, *args, **kwargs):
        type(self).calls += 1; return super().__call__(*args, **kwargs) + self.calls
net = Net(nn.Linear(4, 1)); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex(), Net.calls)
""",
    "forward replaced on the instance": """
forward = model.forward
def ours(x): print('ours'); return forward(x) * 2
model.forward = ours; print(train()); model.forward = lambda x: forward(x); print(train()); del model.forward
print(train())
print('forward' in vars(model))
""",
    "_call_impl replaced by the program": """
call = nn.Module._call_impl
def ours(self, *args, **kwargs): print(type(self).__name__); return call(self, *args, **kwargs)
nn.Module._call_impl = ours; print(train()); nn.Module._call_impl = call; print(train())
""",
    "nn.Module.__call__ replaced by the program": """
call = nn.Module.__call__
names = []
def ours(self, *args, **kwargs): names.append(type(self).__name__); return call(self, *args, **kwargs)
nn.Module.__call__ = ours; print(train()); print(len(names), names[:4]); nn.Module.__call__ = call
print(train(), len(names))
""",
    "a class that logs every attribute": """
log = []
class Net(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1)
    def __getattribute__(self, name):
        log.append(name); return super().__getattribute__(name)
    def forward(self, x): return self.layer(x)
net = Net(); own = torch.optim.SGD(list(net.layer.parameters()), lr=0.1); log.clear()
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
print([name for name in log if name in ('layer', 'parameters', 'modules', 'named_parameters', 'children', 'forward')])
print(
    sorted(
        set(log) & {'parameters', 'named_modules', '__class__', 'state_dict', 'named_buffers', 'buffers', 'device'}
    )
)
""",
    "methods that a program overrides are not called": """
class Net(nn.Linear):
    def parameters(self, recurse=True): print('parameters'); return super().parameters(recurse)
    def modules(self): print('modules'); return super().modules()
    def named_modules(self, *a, **k): print('named_modules'); return super().named_modules(*a, **k)
    def named_parameters(self, *a, **k): print('named_parameters'); return super().named_parameters(*a, **k)
    def buffers(self, recurse=True): print('buffers'); return super().buffers(recurse)
    def children(self): print('children'); return super().children()
    def extra_repr(self): print('repr'); return ''
    def state_dict(self, *a, **k): print('state_dict'); return super().state_dict(*a, **k)
net = Net(4, 1); print('made'); own = torch.optim.SGD(net.parameters(), lr=0.1); print('optimizer')
for n, (x, y) in enumerate(loader): print(n); net(x).sum().backward(); own.step(); own.zero_grad()
""",
    "a class that refuses unknown attributes": """
class Net(nn.Linear):
    def __setattr__(self, name, value):
        if 'compiled' in name: raise AttributeError(name)
        super().__setattr__(name, value)
    def __getattr__(self, name):
        if name.startswith('_') and name not in ('_parameters', '_buffers', '_modules'):
            raise RuntimeError('asked for ' + name)
        return super().__getattr__(name)
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "modules that are all equal, and have a length of 0": """
class Same(nn.Linear):
    def __eq__(self, other): print('asked'); return True
    __hash__ = nn.Module.__hash__
    def __len__(self): return 0
    def __bool__(self): print('bool'); return False
net = nn.Sequential(Same(4, 4), nn.ReLU()); net.append(Same(4, 1))
own = torch.optim.SGD([*net[0].parameters(), *net[2].parameters()], lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "a model with an own __dict__ and with slots": """
class Slotted(nn.Module):
    __slots__ = ("extra",)
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1); object.__setattr__(self, 'extra', 5)
    def forward(self, x): return self.layer(x) * self.extra
net = Slotted(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
print(net.extra, sorted(set(vars(net)) - {'_compiled_call_impl'}), net.__slots__)
""",
    "a forward that is a generator": """
class Parts(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        got = yield self.a(x)
        yield self.b(self.a(x)) * (got or 1)
net = Parts(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    parts = net(x); print(type(parts).__name__, parts.gi_frame.f_lineno > 0); next(parts); loss = parts.send(2).sum()
    parts.close()
    loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "a coroutine as forward": """
import asyncio
class Later(nn.Linear):
    async def forward(self, x):
        await asyncio.sleep(0); return super().forward(x)
net = Later(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
async def loop():
    for x, y in loader:
        one, two = await asyncio.gather(net(x), net(y.expand(4, 4)))
        (one + two).sum().backward(); own.step(); own.zero_grad()
        print((one + two).sum().item().hex(), asyncio.current_task().get_name() != '')
asyncio.run(loop())
""",
    "a model that calls itself": """
class Deep(nn.Linear):
    def forward(self, x, depth=3): return super().forward(x) if depth == 0 else self(x, depth - 1).tanh()
net = Deep(4, 4); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
try: net(x, 5000)
except RecursionError as error: print(error)
print(train())
""",
    "a model 200 modules deep under Python's limit": """
class Deep(nn.Module):
    def __init__(self, inner): super().__init__(); self.inner = inner
    def forward(self, x): return self.inner(x)
net = nn.Linear(4, 1)
for _ in range(200): net = Deep(net)
own = torch.optim.SGD([p for p in net.parameters()], lr=0.1); sys.setrecursionlimit(1000)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "parametrizations, weight_norm and spectral_norm": """
from torch.nn.utils import parametrizations as P, parametrize
P.weight_norm(model[0]); P.spectral_norm(model[2])
own = torch.optim.SGD(model.parameters(), lr=0.1); optimizer = own
print(train(), type(model[0]).__name__, model[0].parametrizations)
with parametrize.cached(), torch.no_grad(): print(model(data[:4][0]).tolist())
parametrize.remove_parametrizations(model[0], 'weight')
print(sorted(n for n, _ in model.named_parameters()), type(model[0]))
""",
    "pruning": """
from torch.nn.utils import prune
prune.l1_unstructured(model[0], 'weight', amount=0.5); prune.random_structured(model[2], 'weight', amount=2, dim=1)
print(
    sorted(n for n, _ in model.named_parameters()),
    sorted(n for n, _ in model.named_buffers()),
    len(model[0]._forward_pre_hooks),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1); print(train()); prune.remove(model[0], 'weight')
print(train(), model[0].weight.eq(0).sum())
""",
    "lazy modules": """
net = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(1))
own = torch.optim.SGD(net.parameters(), lr=0.1); print(net, len(net[0]._forward_pre_hooks))
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
print(net, type(net[0]), len(net[0]._forward_pre_hooks), hasattr(net[0], 'cls_to_become'))
""",
    "state_dict hooks": """
model.register_state_dict_pre_hook(lambda m, p, k: print('pre', p, k))
model.register_state_dict_post_hook(lambda m, s, p, l: print('post', len(s), l))
model.register_load_state_dict_pre_hook(lambda m, s, p, *a: print('load pre', len(s), p, a[1:]))
model.register_load_state_dict_post_hook(lambda m, keys: print('load post', keys))
state = model.state_dict(); print(train(), list(state), state._metadata); print(model.load_state_dict(state), train())
try: model.load_state_dict({**state, 'more': 1})
except RuntimeError as error: print(error)
print(model.load_state_dict({'0.weight': state['0.weight']}, strict=False))
""",
    "deepcopies while training": """
import copy
def compared(twin): return [torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values())]
for n, (x, y) in enumerate(loader):
    twin = copy.deepcopy(model); thin = copy.copy(model)
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
    print(
        compared(twin),
        compared(thin),
        thin(x).sum().item() == model(x).sum().item(),
        sorted(set(vars(twin)) ^ set(vars(thin)) - {'_compiled_call_impl'}),
    )
own = torch.optim.SGD(twin.parameters(), lr=0.1); twin(x).sum().backward(); own.step()
print(twin(x).tolist(), model(x).tolist())
""",
    "pickles by dill and cloudpickle": """
import dill, pickle
class Net(nn.Module):
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1); self.act = lambda v: v.tanh()
    def forward(self, x): return self.act(self.layer(x))
    act = None
net = Net(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
twin = dill.loads(dill.dumps(net))
print(
    torch.equal(twin(x), net(x)),
    sorted(set(vars(twin)) - {'_compiled_call_impl'}),
    vars(twin).get('_compiled_call_impl'),
)
""",
    "torch.save of everything": """
import io
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2); print(train()); scheduler.step()
for thing in (model, optimizer, scheduler, loader, model.state_dict(), optimizer.state_dict(), model[0].weight.grad):
    file = io.BytesIO(); torch.save(thing, file); again = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    print(type(again).__name__, len(file.getvalue()))
torch.save(model, 'model.pt'); torch.save(optimizer, 'optimizer.pt')
torch.save((model, optimizer, scheduler), 'all.pt')
again, own, late = torch.load('all.pt', weights_only=False)
print(own.param_groups[0]['params'][0] is again[0].weight, late.optimizer is own)
""",
    "apply, to, train and the order of names": """
model.apply(lambda m: print(type(m).__name__)); print(train()); seen = []
for mode in (False, True): model.train(mode); print([m.training for m in model.modules()], train())
model.to(torch.float64).to(torch.float32); model.half().float(); model.requires_grad_(True); print(train())
print(
    [n for n, _ in model.named_modules()],
    [n for n, _ in model.named_parameters()],
    [n for n, _ in model.named_children()],
    dict(model.named_buffers()),
)
model.to('meta'); print(model[0].weight.device, nn.Module.to.__name__, nn.Module.cuda.__doc__[:30])
""",
    "meta device, to_empty and skip_init": """
with torch.device('meta'): net = nn.Linear(4, 1)
own = torch.optim.SGD(net.parameters(), lr=0.1); loss = net(torch.empty(2, 4, device='meta')).sum(); loss.backward()
own.step(); print(loss, net.weight.grad)
try: loss.item()
except RuntimeError as error: print(error)
for x, y in loader: net(torch.empty(2, 4, device='meta')).sum().backward(); own.step(); own.zero_grad()
net.to_empty(device='cpu'); nn.init.ones_(net.weight); nn.init.zeros_(net.bias); print(net(torch.ones(1, 4)))
made = nn.utils.skip_init(nn.Linear, 4, 1); print(made.weight.shape, torch.rand(1))
""",
    "swap_tensors and overwriting on conversion": """
torch.__future__.set_swap_module_params_on_conversion(True)
kept = model[0].weight; print(train()); model.double().float(); print(kept is model[0].weight, train())
one, two = torch.ones(2), torch.zeros(2); torch.utils.swap_tensors(one, two); print(one, two)
twin = torch.nn.Parameter(torch.ones(1, 8)); optimizer.zero_grad(set_to_none=True)
torch.utils.swap_tensors(model[2].weight, twin); print(train())
""",
    "references to a trained model": """
import weakref
for x, y in loader: model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(
    sys.getrefcount(model),
    sys.getrefcount(model[0]),
    sys.getrefcount(model[0].weight),
    sys.getrefcount(optimizer),
    sys.getrefcount(loader),
)
print(len(weakref.getweakrefs(model[0])), len(gc.get_referrers(model)), len(gc.get_referrers(optimizer)), gc.garbage)
""",
    "a trained model that is deleted": """
import weakref
finals = []
for thing in (model, model[0], optimizer, loader, data, model[0].weight):
    weakref.finalize(thing, finals.append, type(thing).__name__)
gc.disable(); del model, loader, data, thing; print(finals); del optimizer; print(finals); gc.collect(); print(finals)
""",
    "a model's __del__ and cycles": """
class Net(nn.Linear):
    def __init__(self): super().__init__(4, 1); self.__dict__['me'] = self
    def __del__(self): print('deleted', sorted(set(vars(self)) - {'_compiled_call_impl'}))
for round in range(3):
    net = Net(); own = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
    del net, own; print(gc.collect() > 0)
""",
    "a model with a property and a shared layer": """
class Net(nn.Module):
    def __init__(self): super().__init__(); self.one = nn.Linear(4, 4); self.two = self.one
    @property
    def device(self): print('device asked'); return next(self.parameters()).device
    @property
    def config(self): print('config asked'); raise AttributeError('none')
    @property
    def training_steps(self): print('steps asked'); return 3
    def forward(self, x): return self.two(self.one(x))
net = Net(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "a module in two models": """
part = nn.Linear(4, 4); one, two = nn.Sequential(part, nn.Linear(4, 1)), nn.Sequential(part, nn.Linear(4, 2))
own, other = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.Adam(two.parameters())
for x, y in loader:
    for net, opt in ((one, own), (two, other)):
        loss = net(x).sum(); loss.backward(); opt.step(); opt.zero_grad(); print(loss.item().hex())
""",
    "parameters that change in place of the model": """
for n, (x, y) in enumerate(loader):
    if n == 3:
        model[0] = nn.Linear(4, 8); optimizer.param_groups[0]['params'][:2] = list(model[0].parameters())
        optimizer.state.clear()
    if n == 5: model[2].weight = nn.Parameter(torch.ones(1, 8))
    loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
print(len(optimizer.state), model)
""",
    "class of a model changed": """
class Wrapped(nn.Sequential):
    def forward(self, x): return super().forward(x) * 2
model.__class__ = Wrapped; print(train(), type(model).__name__); model.__class__ = nn.Sequential; print(train())
print(
    inspect.getfile(type(model)).endswith('container.py') if (inspect := __import__('inspect')) else 0,
    model.__doc__[:30],
)
""",
    "__torch_function__ on inputs of a model": """
class Named(torch.Tensor): pass
for x, y in loader:
    out = model(x.as_subclass(Named)); print(type(out).__name__, type(out.sum()).__name__, out.grad_fn.name())
    loss = out.sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(type(model[0].weight.grad), repr(loss)[:6])
""",
    "a dictionary and a dataclass as input": """
import dataclasses
@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    n: int = 0
    def __getattr__(self, name): print('asked', name); raise AttributeError(name)
class Net(nn.Linear):
    def forward(self, batch): return super().forward(batch.x)
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(Batch(x)).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
    "a mapping that logs what is read of it": """
from collections.abc import Mapping
class Logged(Mapping):
    def __init__(self, x): self.x = x
    def __getitem__(self, key): print('get', key); return {'x': self.x}[key]
    def __iter__(self): print('iter'); return iter(['x'])
    def __len__(self): print('len'); return 1
class Net(nn.Linear):
    def forward(self, batch): return super().forward(batch['x'])
net = Net(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
made = torch.utils.data.DataLoader(
    data, batch_size=4, collate_fn=lambda rows: Logged(torch.stack([x for x, _ in rows]))
)
for batch in made: loss = net(batch).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
""",
}
IMPORTED_FIRST = {
    "a model made before its optimizer's class is imported": """
net = nn.Linear(4, 1); net(torch.ones(1, 4)).sum().backward(); print(torch.rand(1))
from torch.optim.sgd import SGD
own = SGD(net.parameters(), lr=0.1)
for _ in range(6): own.step(); net(torch.ones(1, 4)).sum().backward(); print(net.weight.tolist())
""",
    "keys of nn.Module and of its class": """
print(sorted(vars(nn.Module)), sorted(nn.Module.__annotations__), sorted(vars(nn.Sequential)))
net = nn.Linear(1, 1); own = torch.optim.SGD(net.parameters(), lr=1.0)
for _ in range(4): net(torch.ones(1, 1)).sum().backward(); own.step()
print(sorted(vars(nn.Module)), [c.__name__ for c in type(net).__mro__], nn.Module.__call__.__qualname__)
""",
}

PROBES = (*probes("modules", TEXTS), *probes("modules", IMPORTED_FIRST, before=TORCH))
