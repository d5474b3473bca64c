"""Programs without torch: exits, signals, interpreters, output, files, processes, what they see of themselves."""

from __future__ import annotations

import re

from tests.harmless.compare import PYTHON, Program

HELLO = "import sys\nprint('hello', sys.argv[1:], __name__)\n"
TRACED = "def inner():\n    return 1 / 0\ndef outer():\n    inner()\nouter()\n"
NUMBERS = re.compile(rb"0x[0-9a-f]+")


def _python(name: str, family: str, text: str, *flags: str, **further: object) -> Program:
    files = {"train.py": text, **further.pop("files", {})}  # type: ignore[dict-item]
    return Program(name, family, (PYTHON, *flags, "train.py"), files=files, **further)  # type: ignore[arg-type]


def _exits() -> list[Program]:
    codes = [_python(f"sys.exit({code})", "exit", f"import sys; sys.exit({code})") for code in (0, 1, 2, 3, 126, 255)]
    signals = [
        _python(f"ends itself by {name}", "exit", f"import os, signal; print(1); os.kill(os.getpid(), signal.{name})")
        for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGPIPE")
    ]
    return [
        *codes,
        *signals,
        _python("sys.exit with a text", "exit", "import sys; print('out'); sys.exit('no data: give --data')"),
        _python("an uncaught error", "exit", TRACED),
        _python(
            "an error in a thread", "exit", "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()"
        ),
        _python("os._exit with unflushed text", "exit", "import os; print('lost'); os._exit(7)"),
        _python("atexit and __del__", "exit", ATEXIT),
        _python(
            "exec of another Python",
            "exit",
            "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])",
        ),
        _python("a segmentation fault with faulthandler", "exit", FAULT, masked=lambda out: NUMBERS.sub(b"N", out)),
        _python("recursion without end", "exit", "def f(): f()\ntry: f()\nexcept RecursionError as e: print(e)"),
        _python("RLIMIT_CPU", "exit", "while True: pass", setup="ulimit -t 1; ulimit -c 0"),
        Program("no such command", "exit", ("/bin/sh", "-c", "no-such-trainer")),
        Program("no such file", "exit", (PYTHON, "absent.py")),
        _python("a syntax error", "exit", "print('begun'\nx = = 1\n"),
    ]


ATEXIT = """
import atexit, weakref
class Held:
    def __del__(self): print('deleted')
held = Held()
weakref.finalize(held, print, 'finalized')
for number in range(3): atexit.register(print, 'exit', number)
"""
FAULT = """
import ctypes, faulthandler, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable()
print('before', flush=True)
ctypes.string_at(0)
"""


def _interpreters() -> list[Program]:
    flags = [
        ("-O",),
        ("-OO",),
        ("-B",),
        ("-u",),
        ("-X", "dev"),
        ("-W", "error"),
        ("-I",),
        ("-E",),
        ("-S",),
        ("-s",),
        ("-P",),
    ]
    return [
        *(_python(f"python {' '.join(each)}", "python", SELF, *each) for each in flags),
        Program("python -c", "python", (PYTHON, "-c", HELLO, "a", "--name", "b")),
        Program("python - from stdin", "python", (PYTHON, "-", "a"), stdin=HELLO.encode()),
        Program("python -m of a package", "python", (PYTHON, "-m", "pack", "a"), files={"pack/__main__.py": HELLO}),
        Program("python -m timeit's help", "python", (PYTHON, "-m", "timeit", "-h")),
        Program("an executable script", "python", ("./train",), files={"train": f"#!{PYTHON}\n{HELLO}"}),
        _python("interactive after the script", "python", HELLO, "-i", stdin=b"print(6 * 7)\n"),
        _python(
            "own sitecustomize",
            "python",
            "print(own)",
            env={"PYTHONPATH": "own"},
            files={"own/sitecustomize.py": "import builtins; builtins.own = 7"},
        ),
        _python(
            "own trainhooks and monitor",
            "python",
            "import trainhooks, monitor\nprint(trainhooks.x, monitor.x)",
            files={"trainhooks.py": "x = 1", "monitor.py": "x = 2"},
        ),
        _python(
            "own psutil and zmq",
            "python",
            "import psutil, zmq\nprint(psutil.x, zmq.x)",
            files={"psutil.py": "x = 1", "zmq.py": "x = 2"},
        ),
        _python("PYTHONWARNINGS=error", "python", SELF, env={"PYTHONWARNINGS": "error"}),
        _python(
            "PYTHONHASHSEED=0", "python", "print(list({'a', 'b', 'c', 'd'}), hash('x'))", env={"PYTHONHASHSEED": "0"}
        ),
        _python("PYTHONIOENCODING=latin-1", "python", "print('caf\\xe9')", env={"PYTHONIOENCODING": "latin-1"}),
        _python(
            "LC_ALL=C without UTF-8 mode",
            "python",
            SELF,
            env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ),
        _python(
            "cProfile",
            "python",
            PROFILE,
        ),
        _python("sys.settrace and sys.setprofile", "python", TRACE),
        _python("python -m trace", "python", HELLO, "-m", "trace", "--count", "--missing", "--coverdir=cover"),
        _python("a debugger's commands", "python", TRACED, "-m", "pdb", stdin=b"b inner\nc\nw\nq\n"),
    ]


SELF = """
import locale, sys, threading, signal, os
print(sys.argv, __name__, __file__, __spec__, sys.flags)
print(sys.stdout.encoding, sys.stdout.errors, locale.getpreferredencoding(False), sys.getfilesystemencoding())
print(sorted(vars()), sys.getrecursionlimit(), sys.getswitchinterval(), sys.warnoptions)
print(threading.active_count(), [t.name for t in threading.enumerate()], sys.gettrace(), sys.getprofile())
print([(s.name, str(signal.getsignal(s))) for s in sorted(signal.valid_signals()) if hasattr(s, 'name')])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpriority(0, 0), os.umask(0o22), os.getcwd())
"""
PROFILE = """
import cProfile, pstats
p = cProfile.Profile()
p.runcall(sorted, [3, 1])
print(sorted(k[2] for k in pstats.Stats(p).stats))
"""
TRACE = """
import sys, threading
seen = []
def tracer(frame, event, arg):
    seen.append((event, frame.f_code.co_name)); return tracer
def work():
    x = 1
    return x
threading.settrace(tracer)
sys.settrace(tracer); work(); sys.settrace(None)
sys.setprofile(lambda frame, event, arg: seen.append((event, getattr(arg, '__name__', ''))))
work(); len(seen); sys.setprofile(None)
t = threading.Thread(target=work); t.start(); t.join()
print([s for s in seen if s[1] in ('work', 'len', '')])
"""


LOUD = """
import sys
for n in range(20):
    print(n, flush=True)
    print(-n, file=sys.stderr, flush=True)
"""


def _output() -> list[Program]:
    return [
        _python("20 MB of bytes", "output", "import os\nfor n in range(320): os.write(1, bytes(range(256)) * 256)"),
        _python("no newline at the end", "output", "print('half', end='')"),
        _python("NUL bytes and escape sequences", "output", r"import os; os.write(1, b'\0\x1b[2J\xff\r\x07')"),
        _python("both streams", "output", LOUD),
        Program(
            "both in one, in order", "output", ("/bin/sh", "-c", f"{PYTHON} train.py 2>&1"), files={"train.py": LOUD}
        ),
        Program("only head is read", "output", ("/bin/sh", "-c", "yes | head -n 3")),
        _python(
            "stdout closed early",
            "output",
            CLOSED,
        ),
        _python(
            "a progress bar",
            "output",
            "import tqdm, sys\nfor _ in tqdm.tqdm(range(3), bar_format='{n}/{total}'): pass\nprint('end')",
        ),
        _python(
            "logging to a file and to stderr",
            "output",
            LOGGED,
        ),
        _python(
            "5 MB through stdin",
            "output",
            "import sys, hashlib\nd = sys.stdin.buffer.read(); print(len(d), hashlib.md5(d).hexdigest())",
            stdin=bytes(range(256)) * 20000,
        ),
        _python(
            "stdin closed",
            "output",
            "import sys, os\ntry: os.fstat(0); print('open')\nexcept OSError as e: print(e)",
            setup="exec 0<&-",
        ),
        _python("input()", "output", "print(input('name? '))", stdin=b"adam\n"),
        Program("a pipeline", "output", ("/bin/sh", "-c", "cat | tr a-z A-Z | sort"), stdin=b"b\na\n"),
    ]


CLOSED = """
import os, sys
print(1); sys.stdout.flush(); os.close(1)
try: print(2, flush=True)
except OSError as e: sys.stderr.write(str(e)); sys.stdout = None
"""
LOGGED = """
import logging
logging.basicConfig(level=20, format='%(name)s %(message)s', handlers=[
    logging.FileHandler('log.txt'), logging.StreamHandler()])
logging.getLogger('t').info('loss %.3f', 0.5)
"""


def _places() -> list[Program]:
    return [
        _python("HOME unset", "place", "import os; print(os.environ.get('HOME', 'none'))", setup="unset HOME"),
        _python("HOME cannot be written", "place", "print(1)", env={"HOME": "/proc"}),
        _python(
            "TMPDIR does not exist",
            "place",
            "import tempfile; print(tempfile.gettempdir() != '/absent')",
            env={"TMPDIR": "/absent"},
        ),
        _python("umask 077", "place", "open('made', 'w').write('x')", setup="umask 077"),
        _python("nice 7", "place", "import os; print(os.getpriority(0, 0))", setup="renice -n 7 $$ >/dev/null"),
        _python("32 descriptors", "place", LIMITS, setup="ulimit -n 32"),
        _python("a 64 kB stack", "place", LIMITS, setup="ulimit -s 512"),
        _python("files up to 8 MB", "place", "open('big', 'wb').write(bytes(1 << 20))", setup="ulimit -f 16384"),
        _python("files up to 100 kB, a megabyte printed", "place", "print('x' * 1_000_000)", setup="ulimit -f 200"),
        Program(
            "a directory that is gone", "place", (PYTHON, "-c", "print(1)"), setup="mkdir gone; cd gone; rmdir ../gone"
        ),
        Program(
            "an empty environment",
            "place",
            ("/usr/bin/env", "-i", PYTHON, "-c", "import os; print(sorted(os.environ))"),
        ),
        _python("odd file names", "place", "import os\nopen('a\\nb \\xe9', 'w').close(); print(len(os.listdir()))"),
        _python(
            "signals that were ignored",
            "place",
            "import signal; print(signal.getsignal(1), signal.getsignal(2), signal.getsignal(3))",
            setup="trap '' HUP QUIT",
        ),
    ]


LIMITS = """
import os, resource
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith('RLIMIT_')])
files = []
try:
    while True: files.append(open('/dev/null'))
except OSError as e:
    print(len(files), [f.fileno() for f in files][:4], e.errno)
"""


def _processes() -> list[Program]:
    return [
        _python("descriptors at the start", "process", "import os; print(sorted(os.listdir('/proc/self/fd')))"),
        _python(
            "a descriptor that was handed over", "process", "import os; os.write(5, b'kept')", setup="exec 5>handed"
        ),
        _python("multiprocessing fork, spawn, forkserver", "process", POOLS),
        _python(
            "fork without exec",
            "process",
            FORKED,
        ),
        _python(
            "subprocesses",
            "process",
            SUBPROCESS,
        ),
        _python(
            "closerange of everything",
            "process",
            "import os\nos.closerange(3, 512); open('saved', 'w').write('x' * 99)\nprint('done')",
        ),
        _python(
            "asyncio",
            "process",
            ASYNC,
        ),
        _python("an error from a timer's handler", "process", TIMER),
        _python(
            "waits for any child",
            "process",
            "import os\ntry: os.wait()\nexcept ChildProcessError: print('no child of ours')",
        ),
        _python(
            "garbage collector's counts",
            "process",
            "import gc; print(gc.get_threshold(), gc.isenabled(), gc.callbacks, gc.get_freeze_count())",
        ),
        Program(
            "a shell's traps",
            "process",
            ("/bin/bash", "-c", "trap 'echo bye; exit 9' TERM; kill $$; sleep 5"),
            needs=("bash",),
        ),
        Program("setsid", "process", ("setsid", PYTHON, "-c", "print(3); raise SystemExit(6)"), needs=("setsid",)),
        Program(
            "timeout",
            "process",
            ("timeout", "1", PYTHON, "-c", "import time; print(1, flush=True); time.sleep(30)"),
            needs=("timeout",),
        ),
        Program(
            "a C program",
            "process",
            ("/bin/sh", "-c", "gcc -o c main.c && ./c"),
            files={"main.c": MAIN_C},
            needs=("gcc",),
            masked=lambda out: out,
        ),
    ]


FORKED = """
import os
pid = os.fork()
if not pid:
    print('child'); raise SystemExit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
SUBPROCESS = """
import subprocess, sys
r = subprocess.run([sys.executable, '-c', 'print(2)'], capture_output=True, text=True)
print(r)
"""
ASYNC = """
import asyncio
async def f(n):
    await asyncio.sleep(0.01); return n
async def g(): return await asyncio.gather(*map(f, range(4)))
print(asyncio.run(g()))
"""
POOLS = """
import multiprocessing as mp
def square(n): return n * n
if __name__ == '__main__':
    for way in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(way).Pool(2) as pool: print(way, pool.map(square, range(4)))
"""
TIMER = """
import signal, time
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
caught = 0
for _ in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        while True: time.perf_counter()
    except Late: caught += 1
print(caught)
"""
MAIN_C = """
#include <stdio.h>
int main(void) { printf("loss 0.5\\n"); fprintf(stderr, "warn\\n"); return 21; }
"""

PROGRAMS = (*_exits(), *_interpreters(), *_output(), *_places(), *_processes())
