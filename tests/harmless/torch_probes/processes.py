"""Threads and processes: training in them, groups of ranks, sharded and restarted trainings."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TRAINED, probes
from tests.harmless.trainings import TORCHRUN, in_order

THREADS = {
    "a training in a thread": """
import threading
def work(): print(threading.current_thread().name, train(), torch.is_grad_enabled())
for n in range(2): thread = threading.Thread(target=work, name='t%d' % n); thread.start(); thread.join()
print(threading.active_count(), threading.enumerate()[1:], train())
""",
    "trainings in several threads at once": """
from concurrent.futures import ThreadPoolExecutor
def work(seed):
    torch.set_num_threads(1); made = torch.Generator().manual_seed(seed); net = nn.Linear(4, 1)
    nn.init.ones_(net.weight); nn.init.zeros_(net.bias)
    own = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(20):
        loss = net(torch.randn(4, 4, generator=made)).pow(2).mean(); loss.backward(); own.step(); own.zero_grad()
    return loss.item().hex()
with ThreadPoolExecutor(4) as pool: print(list(pool.map(work, range(8))))
print(train())
""",
    "a backward pass in another thread": """
import threading
for x, y in loader:
    loss = model(x).sum(); thread = threading.Thread(target=loss.backward); thread.start(); thread.join()
    optimizer.step(); optimizer.zero_grad(); print(loss.item().hex())
""",
    "an error in a training's thread": """
import threading
def hook(args): print(args.exc_type.__name__, args.exc_value, args.thread.name)
threading.excepthook = hook
def work():
    for n, (x, y) in enumerate(loader):
        loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
        if n == 4: raise ValueError('in the thread')
thread = threading.Thread(target=work, name='worker'); thread.start(); thread.join(); print(train())
""",
    "threads and their settings": """
import threading
print(
    torch.get_num_threads(),
    torch.get_num_interop_threads(),
    torch.__config__.parallel_info().count('OMP') > 0,
    train(),
)
with torch.no_grad():
    thread = threading.Thread(target=lambda: print(torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
    thread.start(); thread.join()
torch.set_num_threads(2); print(torch.get_num_threads(), threading.active_count())
""",
    "a training in a forked child": """
print(train(), flush=True); pid = os.fork()
if pid == 0: print('child', train(), torch.rand(1).item(), flush=True); os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), train(), torch.rand(1).item())
""",
    "a child by multiprocessing's fork": """
import multiprocessing
context = multiprocessing.get_context('fork'); queue = context.SimpleQueue()
def work():
    queue.put((train(), sorted(set(vars(model)) - {'_compiled_call_impl'})[:2], multiprocessing.current_process().name))
child = context.Process(target=work); child.start(); print(queue.get()); child.join(); print(child.exitcode, train())
""",
    "futures and asynchronous tasks of torch": """
future = torch.futures.Future(); future.then(lambda f: print('then', f.value())); print(train())
future.set_result(train()); print(future.wait())
@torch.jit.script
def add(x: torch.Tensor): return torch.jit.wait(torch.jit.fork(torch.neg, x)) + 1
print(add(torch.ones(1)), train())
""",
}
BESIDE = {
    "all threads are waited for": """
import threading, time
print(train()); time.sleep(0.2)
for thread in threading.enumerate():
    if thread is not threading.main_thread(): thread.join()
while threading.active_count() > 1: time.sleep(0.1)
print(threading.stack_size(), threading.enumerate() == [threading.main_thread()])
""",
    "functions that trace and profile other threads": """
import threading, time
seen = set()
def look(frame, event, argument):
    if threading.get_ident() != main: seen.add(frame.f_code.co_name)
main = threading.get_ident(); threading.settrace(look); threading.setprofile(look); print(train()); time.sleep(0.2)
threading.settrace(None); threading.setprofile(None); print(seen)
""",
    "finalizers and the thread that they run in": """
import threading, time
where = []
class Cycle:
    def __init__(self): self.own = self
    def __del__(self): where.append(threading.get_ident())
print(train()); time.sleep(1.0); gc.collect(); where.clear()
for n in range(1500): model(torch.ones(1, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad(); Cycle()
gc.collect(); print(len(where), sum(ident != threading.get_ident() for ident in where) < 15)
""",
    "exceptions of another thread, caught one by one": """
import ctypes, threading, time
class Stop(Exception): pass
print(train()); time.sleep(1.0)  # before Python 3.12 one that is sent while a thread starts may be raised in that one
main, caught, asked = threading.get_ident(), 0, threading.Event()
def stop():
    for _ in range(200):
        asked.wait(); asked.clear(); time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Stop))
thread = threading.Thread(target=stop); thread.start()
while caught < 200:
    try:
        try:
            net = nn.Linear(4, 1); own = torch.optim.SGD(net.parameters(), lr=0.1); asked.set()
            while True: net(torch.ones(2, 4)).sum().backward(); own.step(); own.zero_grad()
        except Stop: caught += 1
    except Stop: caught += 1
thread.join(); print(caught, train())
""",
    "os.write, time and sockets that a test replaces": """
import socket, time
from unittest import mock
print(train())
with mock.patch('os.write'), mock.patch('os.open'), mock.patch('time.sleep'), mock.patch('socket.socket'):
    until = time.monotonic() + 0.5
    while time.monotonic() < until: model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
    print(os.write.called, os.open.called, time.sleep.called, socket.socket.called)
train(); print('over')
""",
}
# What is there before torch, and what follows a training.
ALONE = {
    "a stack of 32 kB for threads": ("import threading; threading.stack_size(32768)", "print(threading.stack_size())"),
    "files that an audit hook forbids with an error of its own": (
        """
import os, sys
forbidden = os.environ.get('TRAINMON_DIR', '/nowhere')
def audit(event, args):
    if event == 'open' and isinstance(args[0], str) and args[0].startswith(forbidden): raise RuntimeError('forbidden')
sys.addaudithook(audit)
""",
        "print(train())",
    ),
    "signals that are blocked while a checkpoint is saved": (
        """
import signal, time
numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGHUP, signal.SIGRTMIN)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
""",
        """
for number in numbers:
    os.kill(os.getpid(), number); time.sleep(0.02); torch.save(model.state_dict(), 'saved.pt')
    print('saved', train(), number in signal.sigpending(), signal.sigwait([number]).name)
print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
""",
    ),
    "a thread for signals that are blocked in all others": (
        "import signal, threading, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
        """
waiting = threading.Thread(target=lambda: print(signal.sigwait([signal.SIGUSR2]).name)); waiting.start()
time.sleep(0.1); os.kill(os.getpid(), signal.SIGUSR2); waiting.join(); print(train())
""",
    ),
}
SPAWNED = {
    "children by spawn and their exceptions": """
import torch, torch.multiprocessing as mp
def work(rank, shared):
    net = torch.nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5): net(torch.ones(1, 2)).sum().backward(); own.step()
    shared[rank] = 1 + rank
    if rank == 1: raise ValueError('rank one')
if __name__ == '__main__':
    shared = torch.zeros(2).share_memory_()
    try: mp.spawn(work, (shared,), nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, str(error).splitlines()[-2:], 'fast_path' in str(error))
    try: mp.spawn(exit, (), nprocs=1)
    except Exception as error: print(type(error).__name__, error)
""",
    "weights that children train in shared memory": """
import torch, torch.multiprocessing as mp
def work(net):
    own = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5): own.zero_grad(); net(torch.ones(1, 2)).sum().backward(); own.step()
if __name__ == '__main__':
    net = torch.nn.Linear(2, 1); torch.nn.init.zeros_(net.weight); torch.nn.init.zeros_(net.bias); net.share_memory()
    for method in ('fork', 'spawn'):
        child = mp.get_context(method).Process(target=work, args=(net,)); child.start(); child.join()
        print(child.exitcode, net.weight.tolist(), net.weight.is_shared())
""",
    "a pool of spawned workers": """
import torch, torch.multiprocessing as mp
def work(n):
    torch.manual_seed(n); net = torch.nn.Linear(2, 1); own = torch.optim.Adam(net.parameters())
    for _ in range(5): loss = net(torch.ones(1, 2)).sum(); loss.backward(); own.step()
    return loss.detach()
if __name__ == '__main__':
    with mp.get_context('spawn').Pool(2) as pool: print([t.item().hex() for t in pool.map(work, range(4))])
""",
}
RANKS_BEGIN = """
import os, time, torch, torch.distributed as dist
from torch import nn
torch.set_num_threads(1); dist.init_process_group('gloo'); rank = dist.get_rank(); torch.manual_seed(rank)
def say(*words): os.write(1, (' '.join(map(str, ('rank', rank, *words))) + chr(10)).encode())  # ranks share it
def end(): dist.barrier(); time.sleep(0.5); dist.destroy_process_group()  # gloo's threads may hold tensors until then
"""
RANKS = {
    "collectives between steps": """
net = nn.Linear(2, 1); [dist.broadcast(p.data, 0) for p in net.parameters()]
own = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(6):
    loss = net(torch.ones(1, 2) * (rank + 1)).sum(); loss.backward()
    for p in net.parameters(): dist.all_reduce(p.grad)
    own.step(); own.zero_grad(); dist.barrier(); say(n, loss.item().hex())
kept = [None, None]; dist.all_gather_object(kept, {'rank': rank})
say(kept, dist.get_backend(), dist.all_reduce(torch.ones(1), async_op=True).wait()); end()
""",
    "DDP: no_sync, unused parameters, static graph": """
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)
    def forward(self, x, both): return self.a(x) + (self.b(x) if both else 0)
for flags in (
    {'find_unused_parameters': True},
    {'static_graph': True},
    {'gradient_as_bucket_view': True, 'find_unused_parameters': True},
):
    net = DDP(Net(), **flags); own = torch.optim.SGD(net.parameters(), lr=0.1)
    for n in range(6):
        both = 'static_graph' in flags or n % 2 == 0
        if n == 3 and 'static_graph' not in flags:
            with net.no_sync(): net(torch.ones(1, 2) * rank, both).sum().backward()
        loss = net(torch.ones(1, 2) * rank, both).sum(); loss.backward(); own.step(); own.zero_grad()
        say(n, loss.item().hex())
end()
""",
    "DDP: hooks on communication and joined ends": """
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
net = DDP(nn.Linear(2, 1)); seen = []
def hook(state, bucket):
    state.append((bucket.index(), bucket.buffer().numel()))
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)
net.register_comm_hook(seen, hook); own = torch.optim.SGD(net.parameters(), lr=0.1)
with Join([net]):
    for n in range(4 + 2 * rank): loss = net(torch.ones(1, 2) * n).sum(); loss.backward(); own.step(); own.zero_grad()
say(
    loss.item().hex(),
    seen[:3],
    len(seen),
    sorted(set(vars(net)) & {'_compiled_call_impl', 'module', 'reducer'} - {'_compiled_call_impl'}),
)
end()
""",
    "FSDP2 on the CPU": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh('cpu', (2,)); net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
for layer in net: fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh); own = torch.optim.AdamW(net.parameters(), lr=0.1)
for n in range(6):
    loss = net(torch.ones(2, 4) * (rank + n)).pow(2).mean(); loss.backward(); own.step(); own.zero_grad()
    say(n, loss.item().hex(), type(net[0].weight).__name__, tuple(net[0].weight.to_local().shape))
say(type(net).__name__, type(net).__mro__[1].__name__, sorted(net.state_dict())); end()
""",
    "DTensors and tensor parallelism": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh('cpu', (2,)); torch.manual_seed(0); net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
net = parallelize_module(net, mesh, {'0': ColwiseParallel(), '1': RowwiseParallel()})
own = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
for n in range(6):
    loss = net(torch.ones(2, 4) * n).pow(2).mean(); loss.backward(); own.step(); own.zero_grad()
    say(n, loss.item().hex())
one = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
say(one.to_local().tolist(), one.redistribute(mesh, [Replicate()]).to_local().tolist()); end()
""",
    "a distributed checkpoint": """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
torch.manual_seed(0); net = nn.Linear(2, 1); own = torch.optim.Adam(net.parameters())
for _ in range(4): net(torch.ones(1, 2)).sum().backward(); own.step(); own.zero_grad()
model, optim = get_state_dict(net, own); dcp.save({'model': model, 'optim': optim}, checkpoint_id='saved')
dist.barrier()
again = {'model': {k: torch.zeros_like(v) for k, v in model.items()}}; dcp.load(again, checkpoint_id='saved')
say(
    sorted(os.listdir('saved')),
    all(torch.equal(again['model'][k], v) for k, v in model.items()),
    sorted(optim['state']),
)
end()
if rank == 0: import shutil; shutil.rmtree('saved')
""",
    "ranks that train unequally long": """
net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(3 + 5 * rank): loss = net(torch.ones(1, 2)).sum(); loss.backward(); own.step(); own.zero_grad()
say(loss.item().hex(), n, sorted(k for k in os.environ if k.startswith(('RANK', 'LOCAL_', 'WORLD', 'GROUP', 'ROLE'))))
end()
""",
    "a sharded optimizer": """
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
torch.manual_seed(0); net = DDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
own = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
for n in range(6):
    loss = net(torch.ones(2, 4) * (n + rank)).pow(2).mean(); loss.backward(); own.step(); own.zero_grad()
    say(n, loss.item().hex())
say(len(own.optim.state), type(own.optim).__name__, sorted(vars(own))[:3]); end()
""",
}

PROBES = (
    *probes("threads", THREADS),
    *probes("threads", BESIDE),
    *(
        probe
        for name, (before, text) in ALONE.items()
        for probe in probes("threads", {name: text}, before + "\n" + TRAINED)
    ),
    *probes("processes", SPAWNED, before="import os\n"),
    *probes("ranks", RANKS, before=RANKS_BEGIN, command=(*TORCHRUN, "train.py"), masked=in_order, short=False),
)
