"""Data: loaders, workers, samplers, what a data set sees of its own use."""

from __future__ import annotations

from tests.harmless.torch_probes.made import TORCH, probes

LOADING = (
    TORCH
    + """
from torch.utils.data import DataLoader, Dataset, IterableDataset
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(loader, show=True):
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        loss = model(x).pow(2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item().hex()
class Rows(Dataset):
    def __len__(self): return 24
    def __getitem__(self, n): return torch.full((2,), float(n))
train(DataLoader(Rows(), batch_size=4))
"""
)
TEXTS = {
    "how often a data set is asked for its length, after the first pass": """
class Counted(Rows):
    asked = 0
    def __len__(self): type(self).asked += 1; return 24
loader = DataLoader(Counted(), batch_size=4); print(Counted.asked); train(loader); first = Counted.asked
for _ in range(3): train(loader); print(Counted.asked - first)
print(len(loader), Counted.asked - first)
""",
    "seeds and generators of two workers": """
class Seeded(Rows):
    def __getitem__(self, n):
        info = torch.utils.data.get_worker_info(); import random
        return torch.tensor(
            [float(info.seed - info.id == base), torch.rand(1).item(), random.random()], dtype=torch.float64
        )[:2].float()
torch.manual_seed(5); generator = torch.Generator(); generator.manual_seed(11); base = 0
loader = DataLoader(Seeded(), batch_size=4, num_workers=2, generator=generator)
for batch in loader: print(batch.tolist()); loss = model(batch).sum(); loss.backward(); optimizer.step()
print(torch.initial_seed(), torch.rand(1), torch.rand(1, generator=generator))
""",
    "the order of a shuffle, and the state after it": """
import random, numpy
torch.manual_seed(9); random.seed(1); numpy.random.seed(2)
loader = DataLoader(Rows(), batch_size=4, shuffle=True)
for _ in range(2): print([b[:, 0].tolist() for b in loader], train(loader))
print(torch.rand(1), random.random(), numpy.random.rand(), torch.get_rng_state().sum())
""",
    "persistent workers and prefetching": """
def init(n): print('worker', n, torch.get_num_threads(), flush=True)
loader = DataLoader(
    Rows(), batch_size=6, num_workers=1, persistent_workers=True, prefetch_factor=3, worker_init_fn=init
)
for _ in range(3): print(train(loader), flush=True)
print(
    type(loader._iterator).__name__,
    loader._iterator._num_yielded,
    loader._iterator._tasks_outstanding,
    len(loader._iterator._workers),
)
""",
    "workers that are spawned": """
if __name__ == '__main__':
    loader = DataLoader(torch.arange(24.0).view(12, 2), batch_size=4, num_workers=1, multiprocessing_context='spawn')
    print(train(loader), train(loader), type(loader.multiprocessing_context).__name__)
""",
    "workers by forkserver": """
if __name__ == '__main__':
    import multiprocessing
    loader = DataLoader(
        torch.arange(24.0).view(12, 2),
        batch_size=4,
        num_workers=1,
        multiprocessing_context=multiprocessing.get_context('forkserver'),
    )
    print(train(loader), train(loader))
""",
    "what a worker sees": """
class Seen(Rows):
    def __getitem__(self, n):
        import signal, threading
        if n == 0:
            print(
                threading.active_count(),
                torch.get_num_threads(),
                sorted(k for k in sys.modules if k.split('.')[0] in ('zmq', 'psutil', 'monitor')),
                flush=True,
            )
        if n == 0:
            print(
                signal.getsignal(signal.SIGTERM),
                signal.getsignal(signal.SIGINT) is signal.default_int_handler,
                sys.excepthook.__name__,
                os.nice(0),
                sorted(os.sched_getaffinity(0)) == sorted(cores),
                flush=True,
            )
        return super().__getitem__(n)
cores = os.sched_getaffinity(0); print(train(DataLoader(Seen(), batch_size=4, num_workers=1)))
""",
    "an exception in a worker and its text": """
class Bad(Rows):
    def __getitem__(self, n):
        if n == 13: raise KeyError('row 13')
        return super().__getitem__(n)
for workers in (0, 1):
    try: train(DataLoader(Bad(), batch_size=4, num_workers=workers))
    except KeyError as error: print(str(error)); print(type(error.__cause__), type(error.__context__))
""",
    "the traceback of an exception in a data set": """
import traceback
class Bad(Rows):
    def __getitem__(self, n):
        if n == 13: raise ValueError('row 13')
        return super().__getitem__(n)
try: train(DataLoader(Bad(), batch_size=4))
except ValueError as error:
    for frame in traceback.extract_tb(error.__traceback__):
        print(os.path.basename(frame.filename), frame.name, frame.line)
""",
    "an uncaught exception of a data set": """
class Bad(Rows):
    def __getitem__(self, n):
        if n == 13: raise ValueError('row 13')
        return super().__getitem__(n)
try: train(DataLoader(Bad(), batch_size=4))
except ValueError as error: sys.excepthook(type(error), error, error.__traceback__)
""",
    "StopIteration in a data set": """
class Short(Rows):
    def __getitem__(self, n):
        if n == 13: raise StopIteration
        return super().__getitem__(n)
loader = DataLoader(Short(), batch_size=4); print(train(loader), len(list(loader)))
try: print(len(list(DataLoader(Short(), batch_size=4, num_workers=1))))
except RuntimeError as error: print(str(error)[-80:])
""",
    "an iterable data set": """
class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info(); print('begun', info and info.id, flush=True)
        try:
            for n in range(10): yield torch.full((2,), float(n))
        finally: print('closed', flush=True)
for workers in (0, 1): print(train(DataLoader(Stream(), batch_size=3, num_workers=workers)), flush=True)
it = iter(DataLoader(Stream(), batch_size=3)); next(it); del it; print('deleted')
""",
    "a warning about an iterable's length": """
class Stream(IterableDataset):
    def __repr__(self): return 'Stream'
    def __len__(self): return 4
    def __iter__(self): return iter(torch.arange(20.0).view(10, 2))
loader = DataLoader(Stream(), batch_size=2); print(len(loader), train(loader))
for batch in loader: pass
""",
    "samplers of the program": """
class Own(torch.utils.data.Sampler):
    def __iter__(self): print('iter'); yield from (5, 3, 1, 7); print('done')
    def __len__(self): print('len'); return 4
loader = DataLoader(Rows(), batch_size=2, sampler=Own()); print(train(loader), len(loader))
S = torch.utils.data
torch.manual_seed(1)
loader = DataLoader(Rows(), batch_sampler=S.BatchSampler(S.WeightedRandomSampler([1.0] * 24, 6), 2, drop_last=True))
print([b.tolist() for b in loader], train(loader))
""",
    "a batch sampler that changes while training": """
class Batches(list): pass
batches = Batches([[n, n + 1] for n in range(0, 20, 2)])
for n, x in enumerate(DataLoader(Rows(), batch_sampler=batches)):
    if n == 4: del batches[7:]
    loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad(); print(n, loss.item().hex())
""",
    "own collate functions and classes of batches": """
class Batch:
    def __init__(self, rows): self.x = torch.stack(rows)
    def __getattribute__(self, name):
        if not name.startswith('__'): print('read', name)
        return object.__getattribute__(self, name)
    def pin_memory(self): return self
for batch in DataLoader(Rows(), batch_size=4, collate_fn=Batch):
    model(batch.x).sum().backward(); optimizer.step(); optimizer.zero_grad()
""",
    "a batch with a faulty shape and faulty methods": """
class Odd(torch.Tensor):
    @property
    def shape(self): print('shape'); raise RuntimeError('no shape')
    def dim(self): print('dim'); return super().dim()
    def numel(self): print('numel'); return super().numel()
for x in DataLoader(Rows(), batch_size=4, collate_fn=lambda rows: torch.stack(rows).as_subclass(Odd)):
    out = model(x.as_subclass(torch.Tensor)); out.sum().backward(); optimizer.step(); optimizer.zero_grad()
    print(out.sum().item().hex())
""",
    "a list of a program's own class as batch": """
class Bag(list):
    def __getitem__(self, n): print('item', n); return super().__getitem__(n)
    def __iter__(self): print('iter'); return super().__iter__()
    def __len__(self): print('len'); return super().__len__()
    def __bool__(self): print('bool'); return True
for bag in DataLoader(Rows(), batch_size=4, collate_fn=lambda rows: Bag([torch.stack(rows)])):
    model(bag[0]).sum().backward(); optimizer.step(); optimizer.zero_grad(); print('-')
""",
    "a mapping of tokens as batch": """
class Tokens(dict):
    def get(self, *a): print('get', a); return super().get(*a)
    def keys(self): print('keys'); return super().keys()
    def __getitem__(self, key): print('item', key); return super().__getitem__(key)
table = nn.Embedding(30, 2); optimizer = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=0.1)
make = lambda rows: Tokens(
    input_ids=torch.stack(rows).long(), attention_mask=torch.ones(len(rows), 2, dtype=torch.long)
)
for batch in DataLoader(Rows(), batch_size=4, collate_fn=make):
    model(table(batch['input_ids'])).sum().backward(); optimizer.step(); optimizer.zero_grad(); print('-')
""",
    "types from default_collate": """
import collections
Pair = collections.namedtuple('Pair', 'a b')
class Mixed(Rows):
    def __getitem__(self, n):
        return {
            'pair': Pair(n, float(n)),
            'text': str(n),
            'list': [torch.ones(2), 3],
            'bytes': b'x',
            'none': numpy.int16(n),
        }
import numpy
for batch in DataLoader(Mixed(), batch_size=8):
    print({k: (type(v).__name__, v) for k, v in batch.items()}); model(batch['list'][0]).sum().backward()
    optimizer.step()
try: list(DataLoader([None, None], batch_size=2))
except TypeError as error: print(error)
""",
    "iterators that are not used up, and two at once": """
loader = DataLoader(Rows(), batch_size=4); one, two = iter(loader), iter(loader)
for n in range(4):
    x, y = next(one), next(two) if n % 2 else torch.ones(4, 2)
    loss = (model(x) - model(y)).pow(2).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(loss.item().hex())
print(one._num_yielded, two._num_yielded, len(one)); del one; print(next(two).tolist(), [b.tolist() for b in two][-1])
print(next(iter(loader)).sum())
try: next(two)
except StopIteration as error: print(repr(error))
""",
    "two loaders zipped, and one chained": """
import itertools
one, two = DataLoader(Rows(), batch_size=4), DataLoader(Rows(), batch_size=8)
for x, y in zip(one, two):
    loss = model(x).sum() + model(y).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(loss.item().hex())
for x in itertools.chain(one, two): model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
for x in itertools.islice(itertools.cycle(one), 9):
    loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
print(loss.item().hex())
""",
    "a loader with its own __iter__ and __next__": """
class Own(DataLoader):
    def __iter__(self):
        print('begun')
        for batch in super().__iter__(): yield batch * 2
        print('ended')
print(train(Own(Rows(), batch_size=4)))
class Endless(DataLoader):
    it = None
    def __iter__(self): return self
    def __next__(self):
        if self.it is None: self.it = super().__iter__()
        try: return next(self.it)
        except StopIteration: self.it = None; raise
loader = Endless(Rows(), batch_size=4); print(train(loader), train(loader), isinstance(loader.it, object))
""",
    "DataLoader.__iter__ replaced by the program": """
make = DataLoader.__iter__; print(make.__qualname__, make.__module__, make.__annotations__)
def ours(self): print('ours', len(self)); return make(self)
DataLoader.__iter__ = ours; loader = DataLoader(Rows(), batch_size=4); print(train(loader))
DataLoader.__iter__ = make; print(train(loader))
D = torch.utils.data.dataloader; step = D._BaseDataLoaderIter.__next__
print(step.__qualname__, D._SingleProcessDataLoaderIter.__next__ is step)
D._BaseDataLoaderIter.__next__ = lambda self: step(self) * 2; print(train(loader))
D._BaseDataLoaderIter.__next__ = step; print(train(loader))
""",
    "a loader that is pickled and copied": """
import copy, pickle
loader = DataLoader(torch.arange(24.0).view(12, 2), batch_size=4, generator=torch.Generator()); print(train(loader))
again = copy.deepcopy(loader); print(train(again), sorted(vars(loader)) == sorted(vars(again)), sorted(vars(loader)))
it = iter(loader); next(it); print(sorted(vars(it)), type(it).__mro__[1].__name__)
loader.generator = None; print(len(pickle.dumps(loader)), train(pickle.loads(pickle.dumps(loader))))
try: pickle.dumps(it)
except Exception as error: print(type(error).__name__, error)
""",
    "a data set that holds a lock, a thread and a file": """
import threading
class Locked(Rows):
    def __init__(self): self.lock = threading.Lock(); self.file = open(__file__); self.local = threading.local()
    def __getitem__(self, n):
        with self.lock: self.file.seek(n); return super().__getitem__(n) + len(self.file.read(2))
data = Locked()
print(
    train(DataLoader(data, batch_size=4)),
    train(DataLoader(data, batch_size=4, num_workers=1)),
    data.lock.locked(),
    data.file.tell(),
)
thread = threading.Thread(target=lambda: print(train(DataLoader(data, batch_size=4)))); thread.start(); thread.join()
""",
    "a timeout of a worker": """
import time
class Slow(Rows):
    def __getitem__(self, n):
        if n == 12: time.sleep(3)
        return super().__getitem__(n)
try: train(DataLoader(Slow(), batch_size=4, num_workers=1, timeout=1))
except RuntimeError as error: print(error)
""",
    "a worker that dies": """
class Dies(Rows):
    def __getitem__(self, n):
        if n == 13: os._exit(3)
        return super().__getitem__(n)
loader = DataLoader(Dies(), batch_size=4, num_workers=1)
sys.unraisablehook = lambda raised: None  # whether its end is heard once more is a race
try: train(loader)
except (RuntimeError, ConnectionError) as error: print('it died', loader._iterator)
""",
    "the file_system strategy of shared memory": """
import torch.multiprocessing as mp
print(mp.get_sharing_strategy(), mp.get_all_sharing_strategies()); mp.set_sharing_strategy('file_system')
loader = DataLoader(Rows(), batch_size=4, num_workers=1); kept = list(loader)
print(train(loader), [k.is_shared() for k in kept], kept[0].tolist())
""",
    "pinned memory without a device": """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always'); print(train(DataLoader(Rows(), batch_size=4, pin_memory=True)))
for one in caught: print(one.category.__name__, os.path.basename(one.filename), str(one.message)[:90])
""",
    "too many workers, and other warnings": """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always'); loader = DataLoader(Rows(), batch_size=12, num_workers=40, shuffle=False)
for one in caught: print(one.category.__name__, os.path.basename(one.filename), len(str(one.message)) > 50)
for given in (
    {'num_workers': -1},
    {'prefetch_factor': 2},
    {'persistent_workers': True},
    {'timeout': -1},
    {'batch_size': 0},
    {'shuffle': True, 'sampler': [1]},
):
    try: DataLoader(Rows(), **given)
    except ValueError as error: print(error)
loader = DataLoader(Rows())
try: loader.batch_size = 3
except ValueError as error: print(error)
""",
    "a loader used in a data set": """
inner = DataLoader(Rows(), batch_size=2)
class Nested(Rows):
    def __getitem__(self, n): return torch.stack([b.sum() for b in inner])[:2] + n
print(train(DataLoader(Nested(), batch_size=4)), [b.sum().item() for b in DataLoader(Nested(), batch_size=6)])
""",
    "weak references to the first batch": """
import weakref
kept = []
for n, x in enumerate(DataLoader(Rows(), batch_size=4)):
    if n == 0: kept.append(weakref.ref(x))
    loss = model(x).sum(); kept.append(weakref.ref(loss)); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print([k() is None for k in kept])
del x, loss; print([k() is None for k in kept], sys.getrefcount(optimizer.param_groups[0]['params'][0]))
""",
    "who refers to a batch": """
for x in DataLoader(Rows(), batch_size=4):
    print(sys.getrefcount(x), len(gc.get_referrers(x)), x.is_leaf, x.grad_fn, x.untyped_storage().data_ptr() != 0)
    loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(sys.getrefcount(x), sys.getrefcount(loss), sys.getrefcount(model))
""",
    "random_split, subsets, stacked and concatenated sets": """
D = torch.utils.data
one, two = D.random_split(Rows(), [0.75, 0.25], generator=torch.Generator().manual_seed(3))
joint = D.ConcatDataset([one, two])
print(
    one.indices,
    train(DataLoader(joint, batch_size=4)),
    train(DataLoader(D.Subset(joint, [1, 2, 3]))),
    len(D.StackDataset(a=one, b=one)),
)
class Many(Rows):
    def __getitems__(self, ns): print('items', ns); return [self[n] for n in ns]
print(train(DataLoader(Many(), batch_size=6)))
""",
    "break and an error in the middle of an epoch, with workers": """
loader = DataLoader(Rows(), batch_size=4, num_workers=1)
for round in range(3):
    try:
        for n, x in enumerate(loader):
            loss = model(x).pow(2).mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
            if n == 2: break
            if n == 1 and round == 1: raise OSError('stop')
    except OSError as error: print(error)
    print(loss.item().hex())
import multiprocessing; print(len(multiprocessing.active_children()))
""",
}

PROBES = probes("loading", TEXTS, before=LOADING)
