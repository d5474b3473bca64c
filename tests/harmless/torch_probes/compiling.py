"""Compilers: dynamo's counts, graphs and errors; tracing, scripting, export and packages of trained models."""

from __future__ import annotations

from tests.harmless.torch_probes.made import probes

TEXTS = {
    "what dynamo explains": """
def forward(x): y = model(x); print('break'); return y * 2
found = torch._dynamo.explain(forward)(data[:4][0])
print(found.graph_count, found.graph_break_count, found.op_count, [r.reason[:60] for r in found.break_reasons])
print(len(found.out_guards) > 0, train()); torch._dynamo.reset(); found = torch._dynamo.explain(model)(data[:4][0])
print(found.graph_count, found.op_count)
""",
    "graphs and calls of a backend": """
graphs = []
def backend(gm, inputs):
    graphs.append(
        (
            len(gm.graph.nodes),
            len(inputs),
            [n.target if isinstance(n.target, str) else n.target.__name__ for n in gm.graph.nodes],
        )
    )
    return gm.forward
quick = torch.compile(model, backend=backend); print(train()); model_, model = model, quick; print(train(), graphs)
""",
    "a step compiled as a whole": """
def step(x, y):
    loss = nn.functional.mse_loss(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step(); return loss
quick = torch.compile(step, backend='eager')
for x, y in loader: print(quick(x, y).item().hex())
C = torch._dynamo.utils.counters
print(dict(C['stats']), {k.partition('\\n')[0][:80]: v for k, v in C['graph_break'].items()})
""",
    "a compiled optimizer": """
@torch.compile(backend='eager')
def step(): optimizer.step()
for x, y in loader:
    loss = model(x).pow(2).sum(); loss.backward(); step(); optimizer.zero_grad(); print(loss.item().hex())
C = torch._dynamo.utils.counters; print(dict(C['stats']), sum(C['graph_break'].values()))
""",
    "recompiles and their limit": """
torch._dynamo.config.error_on_recompile = True; quick = torch.compile(model, backend='eager', dynamic=False)
for n in (4, 4, 3):
    try:
        loss = quick(data[:n][0]).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
        print(loss.item().hex())
    except Exception as error: print(type(error).__name__, str(error).splitlines()[0][:80])
torch._dynamo.config.error_on_recompile = False
quick = torch.compile(lambda x: model(x) * x.shape[0], backend='eager', dynamic=False)
for n in range(1, 12): quick(data[:n][0])
print(dict(torch._dynamo.utils.counters['stats']), len(torch._dynamo.utils.counters['unimplemented']))
""",
    "a model compiled in place": """
model = nn.Sequential(nn.Linear(4, 1)); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.compile(backend='aot_eager')
print(train(), model._compiled_call_impl is not None, dict(torch._dynamo.utils.counters['stats']))
import copy, pickle
twin = copy.deepcopy(model); print(twin._compiled_call_impl, type(pickle.loads(pickle.dumps(model))).__name__, train())
""",
    "compiled before the optimizer is made": """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)); net.compile(backend='eager')
own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: loss = net(x).sum(); loss.backward(); own.step(); own.zero_grad(); print(loss.item().hex())
print(
    type(net._compiled_call_impl).__name__,
    dict(torch._dynamo.utils.counters['stats']),
    dict(torch._dynamo.utils.counters['graph_break']),
)
""",
    "hooks and compiled models": """
seen = []
model.register_forward_hook(lambda m, a, o: seen.append('forward'))
model[0].register_full_backward_hook(lambda m, i, o: seen.append('back'))
model_, model = model, torch.compile(model, backend='aot_eager')
print(train(), seen[:6], len(seen), dict(torch._dynamo.utils.counters['stats']))
""",
    "fullgraph refuses a break": """
@torch.compile(backend='eager', fullgraph=True)
def forward(x): y = model(x); torch._dynamo.graph_break(); return y
for x, y in loader:
    try: forward(x)
    except Exception as error: print(type(error).__name__, str(error).splitlines()[0])
print(train())
""",
    "disable, allow_in_graph and is_compiling": """
@torch.compiler.disable
def outside(x): print(torch.compiler.is_compiling()); return x + 1
@torch.compile(backend='eager')
def forward(x): return outside(model(x)) * (2 if torch.compiler.is_compiling() else 3)
for x, y in loader:
    loss = forward(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
print(torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), torch.compiler.is_exporting())
""",
    "compiled autograd": """
with (
    torch._dynamo.utils.maybe_enable_compiled_autograd(True, fullgraph=False, dynamic=False)
    if hasattr(torch._dynamo.utils, 'maybe_enable_compiled_autograd')
    else torch.no_grad()
):
    for x, y in loader: loss = model(x).sum(); loss.backward(); print(loss.item().hex())
print({k: v for k, v in torch._dynamo.utils.counters['compiled_autograd'].items()}, train())
""",
    "inductor": """
os.environ['TORCHINDUCTOR_FORCE_DISABLE_CACHES'] = '1'
quick = torch.compile(model, options={'triton.cudagraphs': False})
for x, y in loader:
    loss = quick(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
print(dict(torch._dynamo.utils.counters['stats']), torch._dynamo.utils.counters['aot_autograd']['total'])
""",
    "scripting and tracing a trained model": """
scripted = torch.jit.script(model); traced = torch.jit.trace(model, data[:4][0])
print(scripted.code, traced.code, scripted.graph.findNode('prim::GetAttr').kind())
scripted.save('scripted.ts'); again = torch.jit.load('scripted.ts'); os.unlink('scripted.ts')
print(torch.equal(again(data[:4][0]), model(data[:4][0])), sorted(n for n, _ in again.named_parameters()))
optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1); model = scripted; print(train(), type(model).__name__)
""",
    "a scripted class with its own methods": """
class Net(nn.Module):
    scale: float
    def __init__(self): super().__init__(); self.layer = nn.Linear(4, 1); self.scale = 2.0
    def forward(self, x: torch.Tensor) -> torch.Tensor: return self.helped(self.layer(x))
    @torch.jit.export
    def helped(self, x: torch.Tensor) -> torch.Tensor: return x * self.scale
net = Net(); own = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader: net(x).sum().backward(); own.step(); own.zero_grad()
scripted = torch.jit.script(net)
print(
    scripted.code,
    scripted.helped.code,
    torch.jit.freeze(scripted.eval()).graph.inputs() is not None,
    Net.__annotations__,
)
""",
    "fx with a tracer of the program": """
import torch.fx
class Own(torch.fx.Tracer):
    def is_leaf_module(self, m, name): print('leaf?', name); return isinstance(m, nn.Linear)
    def call_module(self, m, forward, args, kwargs):
        print('call', type(m).__name__); return super().call_module(m, forward, args, kwargs)
graph = Own().trace(model); made = torch.fx.GraphModule(model, graph); print(made.code, graph.python_code('self').src)
optimizer = torch.optim.SGD(made.parameters(), lr=0.1); model = made
print(train(), torch.fx.symbolic_trace(model).code)
class Shown(torch.fx.Interpreter):
    def run_node(self, n): print(n.op, n.name); return super().run_node(n)
print(Shown(made).run(data[:2][0]).tolist())
""",
    "make_fx and its graph": """
from torch.fx.experimental.proxy_tensor import make_fx
def forward(x): return torch.autograd.grad(model(x).sum(), [model[0].weight])[0]
for mode in ('real', 'fake'): print(make_fx(forward, tracing_mode=mode, _allow_non_fake_inputs=True)(data[:4][0]).code)
print(train())
""",
    "export with dynamic shapes": """
from torch.export import Dim, export
program = export(model, (data[:4][0],), dynamic_shapes=({0: Dim('batch')},))
print(program.graph_signature, program.module()(data[:7][0]).shape, program.range_constraints)
torch.export.save(program, 'model.pt2'); print(sorted(torch.export.load('model.pt2').state_dict), train())
os.unlink('model.pt2')
""",
    "AOTAutograd's graphs": """
from functorch.compile import aot_module, make_boxed_func
shown = []
def compiler(gm, inputs): shown.append(gm.code); return make_boxed_func(gm.forward)
quick = aot_module(model, fw_compiler=compiler)
for x, y in loader:
    loss = quick(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
print(len(shown), *shown)
""",
    "packages of a trained model": """
from torch.package import PackageExporter, PackageImporter
with PackageExporter('model.package') as package:
    package.extern('**'); package.save_pickle('model', 'model.pkl', model)
importer = PackageImporter('model.package'); again = importer.load_pickle('model', 'model.pkl')
print(torch.equal(again(data[:4][0]), model(data[:4][0])), sorted(importer.file_structure().children)[0] != '')
os.unlink('model.package'); print(train())
""",
    "logs of torch's compilers": """
import io, logging, re
sys.stderr = io.StringIO(); torch._logging.set_logs(graph_breaks=True, graph_code=True)
class Kept(logging.Handler):
    def emit(self, record): print(record.name, record.levelname, record.getMessage().count('\\n') > -1)
logging.getLogger('torch').addHandler(Kept())
@torch.compile(backend='eager')
def forward(x): y = model(x); torch._dynamo.graph_break(); return y
for x, y in loader: forward(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
print(re.sub(r'V[0-9]+ [0-9:.]+ [0-9]+ |_[0-9a-f]{8}(_[0-9a-f]+){4}', '', sys.stderr.getvalue()))
""",
    "frames that dynamo skips and converts": """
converted = []
from torch._dynamo import convert_frame
@torch.compile(backend='eager')
def outer(x): return inner(x) + 1
def inner(x): return model(x)
for x, y in loader: loss = outer(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(
    dict(torch._dynamo.utils.counters['frames']),
    [str(m.co_name) for m in torch._dynamo.utils.get_compilation_metrics()],
    loss.item().hex(),
)
""",
    "callbacks around compilations": """
from torch._dynamo.callback import callback_handler, on_compile_end, on_compile_start
on_compile_start(lambda a: print('start', type(a).__name__)); on_compile_end(lambda a: print('end'))
quick = torch.compile(model, backend='eager'); print(quick(data[:4][0]).shape); torch._dynamo.reset(); print(train())
""",
}

PROBES = probes("compiling", TEXTS, short=False)
