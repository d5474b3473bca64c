"""Trainings in odd places: jails, missing file systems, other users, limits of their own, starts without a file."""

from __future__ import annotations

from typing import Any

from tests.harmless.compare import Program
from tests.harmless.probe import python
from tests.harmless.torch_probes.made import TORCH, probes

STEPS = """
net = nn.Linear(2, 1); own = torch.optim.SGD(net.parameters(), lr=0.1)
def train(steps=30):
    for _ in range(steps):
        loss = net(torch.ones(4, 2)).sum(); own.zero_grad(); loss.backward(); own.step()
    return loss.item().hex()
"""
TRAIN = TORCH + STEPS + "print(train())\n"


def _start(name: str, setup: str = "", *flags: str, **further: Any) -> Program:
    """Return a probe of a training that a shell starts as `setup` ends."""
    return python("place", name, TRAIN, *flags, setup=setup, ends=0, **further)


def _jail(name: str, mounts: str, **further: Any) -> Program:
    """Return a probe in a file system of its own, in which a shell runs `mounts` before it starts."""
    words = f'exec unshare -m sh -c \'{mounts}; exec "$@"\' sh "$@"'
    return _start(name, words, needs=("unshare",), **further)


def _host(name: str, called: str) -> Program:
    words = f'exec unshare -u sh -c \'hostname {called}; exec "$@"\' sh "$@"'
    return _start(name, words, needs=("unshare", "hostname"))


def _state(name: str, path: str, setup: str = "") -> Program:
    return _start(name, setup, env={"TRAINMON_DIR": path})


def _set(name: str, **env: str) -> Program:
    return _start(name, env=env)


CHANGES = {
    "it takes away its own limit of open files": """
import resource as r
r.setrlimit(r.RLIMIT_NOFILE, (20, 20)); print(train()); print(len(os.listdir('/proc/self/fd')) < 20)
""",
    "it limits the size of its files": """
import resource as r, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print(train()); r.setrlimit(r.RLIMIT_FSIZE, (4096, 4096)); print(train(3000))
""",
    "it becomes another user": """
print(train()); os.setgid(54321); os.setuid(54321); print(train(500), os.getuid())
""",
    "it goes to a jail without anything": """
print(train()); os.mkdir('jail'); os.chroot('jail'); os.chdir('/'); print(train(500), os.listdir('/'))
os.open('made', os.O_CREAT)
""",
    "it cannot be looked at": """
import ctypes; print(train()); print(ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)); print(train(500))
""",
    "it has a name with brackets": """
import ctypes; ctypes.CDLL(None).prctl(15, b'a) S 1 2 (b'); print(train(500), open('/proc/self/comm').read())
""",
    "its record goes while it trains": """
import shutil; print(train()); run = os.environ.get('TRAINMON_RUN'); run and shutil.rmtree(run, True); print(train(500))
""",
    "it stops and goes on by a child": """
import signal, time; print(train()); me = os.getpid()
if not os.fork(): time.sleep(1.5); os.kill(me, signal.SIGCONT); os._exit(0)
os.kill(me, signal.SIGSTOP); print(train(300)); os.wait()
""",
    "text that is run as a notebook's cells": """
cells = [
    'model = nn.Linear(2, 2); o = torch.optim.SGD(model.parameters(), lr=.1)',
    'for _ in range(40):\\n model(torch.ones(1, 2)).sum().backward(); o.step(); o.zero_grad()',
]
space = {'nn': nn, 'torch': torch}
for n, cell in enumerate(cells): exec(compile(cell, f'<ipython-input-{n}>', 'exec'), space)
print(sorted(k for k in space if k != '__builtins__'), space['model'].weight.sum().item().hex())
""",
    "text that is run without a name": """
space = {'net': net, 'torch': torch, 'own': own, '__builtins__': {'range': range}}
exec('for _ in range(40): net(torch.ones(1, 2)).sum().backward(); own.step(); own.zero_grad()', space)
print(net.bias.item().hex())
""",
    "__main__ is taken out of the modules": """
main = sys.modules.pop('__main__'); text = train(300); sys.modules['__main__'] = main; print(text)
""",
    "modules are unloaded and os is another": """
import types
mine = types.ModuleType('os'); mine.__dict__.update(os.__dict__); sys.modules['os'] = mine
print(train(300)); sys.modules.pop('time'); sys.modules.pop('json', None); print(train(300))
""",
    "clocks, open and print are replaced": """
import time, builtins
time.time = time.monotonic = time.perf_counter = lambda: 0.0; time.monotonic_ns = time.perf_counter_ns = lambda: 0
time.sleep = lambda s: None; builtins.open = builtins.print = None
os.write(1, (train(300) + chr(10)).encode())
""",
    "a switch interval of a microsecond and four threads": """
import threading; sys.setswitchinterval(1e-6)
busy = [threading.Thread(target=lambda: [i * i for i in range(20000)]) for _ in range(4)]
for t in busy: t.start()
print(train(300))
for t in busy: t.join()
print(threading.active_count())
""",
    "the collector is off, frozen, and on at each object": """
gc.disable(); print(train(100)); gc.freeze(); print(train(100), gc.get_freeze_count() > 0)
gc.enable(); gc.set_threshold(1); print(train(30), gc.get_threshold())
""",
    "a limit of recursion that is nearly reached": """
def deep(n): return train(30) if n == 0 else deep(n - 1)
print(deep(150)); sys.setrecursionlimit(300); print(deep(80))
""",
    "a filter of system calls refuses sockets": """
import ctypes, socket, struct
class Filter(ctypes.Structure): _fields_ = [('count', ctypes.c_ushort), ('rules', ctypes.c_void_p)]
print(train())
rules = (0x20, 0, 0, 0), (0x15, 0, 1, 41), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
libc = ctypes.CDLL(None, use_errno=True); given = Filter(4, ctypes.addressof(buffer))
print(libc.prctl(38, 1, 0, 0, 0), libc.prctl(22, 2, ctypes.byref(given), 0, 0), train(500))
try: socket.socket()
except OSError as error: print(error.errno)
""",
    "workers of a loader in a directory of their own": """
data = torch.utils.data.DataLoader(
    torch.ones(40, 2), batch_size=2, num_workers=2, worker_init_fn=lambda n: (os.umask(0o777), os.chdir('/')))
for x in data: net(x).sum().backward(); own.step(); own.zero_grad()
print(net.bias.item().hex())
""",
    "it becomes itself by exec, twice": """
n = int(os.environ.get('N', '0')); print(train(), flush=True)
if n < 2: os.environ['N'] = str(n + 1); os.execv(sys.executable, [sys.executable, *sys.argv])
""",
}

PROBES = (
    _jail("no /proc", "mount -t tmpfs none /proc"),
    _jail("no /sys", "mount -t tmpfs none /sys"),
    _jail(
        "a /dev with null and urandom alone",
        "mount -t tmpfs none /dev; mknod /dev/urandom c 1 9; mknod -m 666 /dev/null c 1 3",
    ),
    _jail("no room in /dev/shm", "mount -t tmpfs -o size=4k,mode=0 none /dev/shm"),
    _jail(
        "a /tmp that cannot be written",
        "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp",
        env={"TRAINMON_DIR": "/var/tmp/tm-probe"},
    ),
    _jail("/proc that hides others", "mount -t proc -o hidepid=2 none /proc"),
    _host("a host name with a slash", "a/../b"),
    _host("a host name of 64 letters", "$(printf %064d 0)"),
    _start("namespaces for IPC, host name, control groups", 'exec unshare -i -u -C "$@"', needs=("unshare",)),
    _start("a time namespace", 'exec unshare -T --boottime 90000 --monotonic 90000 --fork "$@"', needs=("unshare",)),
    _start("a user without a name", 'exec unshare -U "$@"', needs=("unshare",)),
    _state("a state directory by a relative link", "../link", "mkdir -p ../real; ln -sfn real ../link"),
    _state("a state directory with odd letters", "/tmp/tm probe \u00e9 %s 'x'"),
    _state("a state directory of 200 letters", "/tmp/" + "d" * 200),
    _state("a state directory that is a dangling link", "../gone", "ln -sfn /nowhere/at/all ../gone"),
    _start("stdin is endless", 'exec "$@" < /dev/zero'),
    _start("stdout is /dev/null and stderr closed", 'exec "$@" > /dev/null 2>&-'),
    _start("umask 0777 and torch", "umask 0777"),
    _start("no signals may be pending", "ulimit -i 0 2>/dev/null"),
    _start("no memory may be locked", "ulimit -l 0"),
    _set("a Turkish locale", LC_ALL="tr_TR.UTF-8", LANG="tr_TR"),
    _set("a locale that does not exist", LC_ALL="xx_YY.nonsense"),
    _set("no UTF-8 at all", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    _set("PYTHONSAFEPATH and PYTHONNOUSERSITE", PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1"),
    _set("PYTHONOPTIMIZE=2", PYTHONOPTIMIZE="2"),
    _set("PYTHONMALLOC=debug", PYTHONMALLOC="debug"),
    _set("PYTHONINTMAXSTRDIGITS, PYTHONNODEBUGRANGES", PYTHONINTMAXSTRDIGITS="640", PYTHONNODEBUGRANGES="1"),
    _set("PYTHONTRACEMALLOC", PYTHONTRACEMALLOC="1"),
    _set("the C library's own", GLIBC_TUNABLES="glibc.malloc.arena_max=1", MALLOC_PERTURB_="85", MALLOC_CHECK_="3"),
    _set("no PATH", PATH="/nowhere"),
    _start("a training by -E and -P", "", "-E", "-P", "-X", "frozen_modules=off", "-X", "utf8=0"),
    _start("a training by -X dev", "", "-X", "dev", "-W", "ignore", "-X", "no_debug_ranges"),
    *probes("place", CHANGES, before=TORCH + STEPS),
)
