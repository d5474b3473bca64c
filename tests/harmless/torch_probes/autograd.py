"""Autograd: hooks, graphs, higher derivatives, functional transforms, errors."""

from __future__ import annotations

from tests.harmless.torch_probes.made import probes

TEXTS = {
    "order of tensor, module and accumulator hooks": """
seen = []
model[0].weight.register_hook(lambda g: seen.append('weight'))
model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append('accumulated'))
model[0].register_full_backward_pre_hook(lambda *a: seen.append('module pre'))
model[0].register_full_backward_hook(lambda *a: seen.append('module'))
model.register_full_backward_hook(lambda *a: seen.append('model'))
model.register_forward_hook(lambda *a: seen.append('forward'))
print(train(), seen)
""",
    "hooks on graph nodes": """
seen = []
for x, y in loader:
    loss = model(x).sum()
    loss.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    loss.grad_fn.register_prehook(lambda go: seen.append(len(go)))
    loss.backward(); optimizer.step(); optimizer.zero_grad()
print(seen)
""",
    "names of a graph's nodes": """
def names(node, depth=0):
    if node is not None and depth < 8:
        print(' ' * depth + node.name(), len(node.next_functions), sorted(node.metadata))
        for inner, _ in node.next_functions: names(inner, depth + 1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y); loss.backward(); optimizer.step()
names(loss.grad_fn)
""",
    "a graph kept for a second backward": """
for x, y in loader:
    loss = model(x).pow(2).sum()
    loss.backward(retain_graph=True); first = model[0].weight.grad.clone(); loss.backward()
    print(torch.equal(2 * first, model[0].weight.grad)); optimizer.step(); optimizer.zero_grad()
""",
    "backward twice without the graph": """
for x, y in loader:
    loss = model(x).pow(2).sum(); loss.backward()
    try: loss.backward()
    except RuntimeError as error: print(type(error), str(error))
    optimizer.step(); optimizer.zero_grad()
""",
    "a gradient penalty": """
for x, y in loader:
    x.requires_grad_()
    out = model(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.mean() + ((g.norm(dim=1) - 1) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); print(loss.item().hex(), g.grad_fn.name())
""",
    "jacobian, hessian, hvp, vjp": """
F = torch.autograd.functional
for x, y in loader:
    loss = model(x).pow(2).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    x = x[0]
    print(F.jacobian(model, x).sum().item().hex(), F.hessian(lambda v: model(v).sum() ** 2, x).sum().item().hex())
    print(F.hvp(lambda v: model(v).sum() ** 2, x, x)[1].tolist(), F.vjp(model, x, torch.ones(1))[1].tolist())
""",
    "torch.func: per-sample gradients": """
from torch.func import functional_call, grad, vmap
def loss_of(p, x, y): return nn.functional.mse_loss(functional_call(model, p, (x[None],)), y[None])
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step()
    p = {n: v.detach() for n, v in model.named_parameters()}
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(p, x, y)
    print({n: (tuple(g.shape), g.sum().item().hex()) for n, g in each.items()})
""",
    "torch.func: jvp, vjp, jacrev, linearize": """
from torch.func import jacfwd, jacrev, jvp, linearize, vjp
for x, y in loader:
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
    out, push = linearize(model, x); print(push(torch.ones_like(x)).tolist())
    print(jvp(model, (x,), (torch.ones_like(x),))[1].tolist(), vjp(model, x)[1](torch.ones(4, 1))[0].tolist())
    print(torch.allclose(jacrev(model)(x), jacfwd(model)(x)))
""",
    "forward-mode derivatives": """
import torch.autograd.forward_ad as fwAD
for x, y in loader:
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
    with fwAD.dual_level():
        out = model(fwAD.make_dual(x, torch.ones_like(x)))
        print(fwAD.unpack_dual(out).tangent.tolist(), out.requires_grad, fwAD._current_level)
""",
    "a custom function and what it saves": """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x); ctx.set_materialize_grads(False); return x * 2
    @staticmethod
    def backward(ctx, g):
        print(
            ctx.needs_input_grad,
            len(ctx.saved_tensors),
            ctx.name(),
            torch.is_grad_enabled(),
            sys._getframe(1).f_code.co_name,
        )
        return g * 2
for x, y in loader:
    Twice.apply(model(x)).sum().backward(); optimizer.step(); optimizer.zero_grad()
""",
    "saved_tensors_hooks": """
seen = []
def pack(t): seen.append(tuple(t.shape)); return t
def unpack(t): seen.append('out'); return t
with torch.autograd.graph.saved_tensors_hooks(pack, unpack): print(train())
print(len(seen), seen[:12], seen.count('out'))
with torch.autograd.graph.save_on_cpu(): print(train())
try:
    with torch.autograd.graph.disable_saved_tensors_hooks('not here'):
        train(); torch.autograd.graph.saved_tensors_hooks(pack, unpack).__enter__()
except RuntimeError as error: print(error)
""",
    "anomaly mode's warning and traceback": """
import warnings
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): raise ValueError('bad gradient')
with warnings.catch_warnings(record=True) as caught, torch.autograd.detect_anomaly():
    warnings.simplefilter('always')
    for x, y in loader:
        try: Bad.apply(model(x)).sum().backward()
        except ValueError as error: print(error)
for one in caught: print(one.category.__name__, one.lineno, len(str(one.message)), str(one.message)[:90])
""",
    "inference_mode and no_grad between steps": """
for x, y in loader:
    with torch.inference_mode(): out = model(x); print(out.is_inference(), out.requires_grad)
    with torch.no_grad(): print(model(x).requires_grad, torch.is_grad_enabled())
    with torch.no_grad(), torch.enable_grad(): print(model(x).grad_fn.name())
    loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    try: (out * model[0].weight.sum()).sum().backward()
    except RuntimeError as error: print(str(error)[:60])
@torch.no_grad()
def score(x): return model(x)
print(score(x).requires_grad, score.__name__, torch.set_grad_enabled(True).prev)
""",
    "backward with inputs=": """
for x, y in loader:
    optimizer.zero_grad()
    model(x).sum().backward(inputs=[model[0].weight, model[2].bias])
    print([p.grad is None for p in model.parameters()]); optimizer.step()
try: model(x).sum().backward(inputs=[])
except RuntimeError as error: print(error)
""",
    "an error raised in a gradient hook": """
import traceback
def fail(g): raise KeyError('in the hook')
for n, (x, y) in enumerate(loader):
    handle = model[0].weight.register_hook(fail) if n == 5 else None
    try: model(x).sum().backward(); optimizer.step()
    except KeyError as error: print(n, repr(error), [f.name for f in traceback.extract_tb(error.__traceback__)][-1])
    if handle is not None: handle.remove()
    print([p.grad is None for p in model.parameters()]); optimizer.zero_grad()
""",
    "what backward leaves of its graph": """
import weakref
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y); kept = weakref.ref(loss); saved = weakref.ref(loss.grad_fn._saved_self)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); del loss
    print(kept() is None, saved() is None)
""",
    "version counters": """
for x, y in loader:
    before = [p._version for p in model.parameters()]
    loss = nn.functional.mse_loss(model(x), y); print(x._version, y._version, loss._version)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(
        before,
        [p._version for p in model.parameters()],
        [p.grad._version for p in model.parameters()],
        loss._version,
    )
""",
    "a weight changed between forward and backward": """
for n, (x, y) in enumerate(loader):
    out = model(x).pow(2).sum()
    if n % 3 == 2:
        with torch.no_grad(): model[2].weight.add_(1)
    try: out.backward(); optimizer.step(); optimizer.zero_grad()
    except RuntimeError as error: print(n, error)
""",
    "allow_mutation_on_saved_tensors": """
with torch.autograd.graph.allow_mutation_on_saved_tensors():
    for x, y in loader:
        out = model(x); squared = out.pow(2); out.mul_(3)
        squared.sum().backward(); optimizer.step(); optimizer.zero_grad()
        print(squared.sum().item().hex())
""",
    "a backward pass of several losses at once": """
for x, y in loader:
    one, two = model(x).sum(), model(y.expand(4, 4)).pow(2).mean()
    torch.autograd.backward([one, two], [torch.tensor(1.0), torch.tensor(0.5)])
    print(model[0].weight.grad.sum().item().hex()); optimizer.step(); optimizer.zero_grad()
try: torch.autograd.backward([one], grad_tensors=[None], grad_variables=[None])
except Exception as error: print(type(error).__name__, str(error)[:60])
""",
    "a backward pass of no scalar": """
for x, y in loader:
    out = model(x)
    try: out.backward()
    except RuntimeError as error: print(error)
    out.backward(torch.ones_like(out)); optimizer.step(); optimizer.zero_grad()
try: torch.ones(1).backward()
except RuntimeError as error: print(error)
""",
    "backward inside backward": """
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x.sum()
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(); x.pow(2).sum().backward()
        return g * x.grad
for x, y in loader:
    loss = Inner.apply(model(x)); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
""",
    "reentrant checkpointing inside the model": """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
calls = []
model[0].register_forward_hook(lambda *a: calls.append(torch.is_grad_enabled()))
for x, y in loader:
    x.requires_grad_()
    for again in (
        lambda: checkpoint(model, x, use_reentrant=True),
        lambda: checkpoint_sequential(model, 2, x, use_reentrant=False),
    ):
        loss = again().sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
        print(loss.item().hex(), len(calls))
print(calls[:6])
""",
    "gradcheck and gradgradcheck": """
from torch.autograd import gradcheck, gradgradcheck
double = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
own = torch.optim.SGD(double.parameters(), lr=0.1)
x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
for _ in range(4):
    double(x).sum().backward(); own.step(); own.zero_grad(); print(gradcheck(double, (x,)), gradgradcheck(double, (x,)))
""",
    "a multi-gradient hook": """
seen = []
for x, y in loader:
    out = model(x); leaf = [model[0].weight, model[2].weight]
    handle = torch.autograd.graph.register_multi_grad_hook(leaf, lambda gs: seen.append([g is None for g in gs]))
    other = torch.autograd.graph.register_multi_grad_hook(leaf, lambda g: seen.append(tuple(g.shape)), mode='any')
    out.sum().backward(); optimizer.step(); optimizer.zero_grad(); handle.remove(); other.remove()
print(seen)
""",
    "gradients' own edges and identity": """
E = torch.autograd.graph
for x, y in loader:
    out = model(x); edge = E.get_gradient_edge(model[0].weight)
    (g,) = torch.autograd.grad(out.sum(), (edge,), retain_graph=True)
    print(edge.node.name(), edge.output_nr, g.sum().item().hex())
    held = model[0].weight.grad; out.sum().backward()
    print(held is model[0].weight.grad, model[0].weight.grad.is_contiguous()); optimizer.step()
    optimizer.zero_grad(set_to_none=False)
""",
    "autograd.grad: unused inputs and batched ones": """
extra = torch.zeros(1, requires_grad=True)
for x, y in loader:
    out = model(x)
    try: torch.autograd.grad(out.sum(), (extra,), retain_graph=True)
    except RuntimeError as error: print(error)
    print(torch.autograd.grad(out.sum(), (extra,), allow_unused=True, retain_graph=True))
    print(torch.autograd.grad(out.sum(), (extra,), materialize_grads=True, retain_graph=True))
    print(
        [
            g.shape
            for g in torch.autograd.grad(
                out, list(model.parameters()), torch.eye(4)[:, :, None], is_grads_batched=True
            )
        ]
    )
    for p in model.parameters(): p.grad = torch.ones_like(p)
    optimizer.step(); optimizer.zero_grad()
""",
}

PROBES = probes("autograd", TEXTS)
