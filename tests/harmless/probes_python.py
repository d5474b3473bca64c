"""The interpreter: hooks, tracing, threads, exits, and tools that run a program."""

from __future__ import annotations

from functools import partial

from tests.harmless.compare import PYTHON, Program
from tests.harmless.probe import ADDRESSES, python, without

_interpreter = partial(python, "interpreter")
_tool = partial(python, "tool")

PROBES = (
    _interpreter(
        "orig_argv, flags, warnoptions and -X",
        "import sys; print(sys.orig_argv[1:], sys.flags, sys.warnoptions, sys._xoptions)",
        "-Wi",
        "-X",
        "own=1",
        "-b",
    ),
    _interpreter(
        "the three excepthooks",
        """
        import sys, threading
        sys.excepthook = lambda *a: print('top', a[1], flush=True)
        threading.excepthook = lambda a: print('thread', a.exc_value, flush=True)
        sys.unraisablehook = lambda a: print('lost', a.exc_value, flush=True)
        print(sys.excepthook is not sys.__excepthook__)
        class Bad:
            def __del__(self): raise KeyError('del')
        Bad()
        t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()
        raise ValueError('end')
        """,
    ),
    _interpreter(
        "the order of exit: threads, atexit, finalizers, modules",
        """
        import atexit, threading, time, weakref
        class C:
            def __del__(self): print('del', flush=True)
        c = C(); weakref.finalize(c, print, 'finalize', flush=True); kept = C()
        atexit.register(print, 'atexit', flush=True)
        threading.Thread(target=lambda: (time.sleep(0.2), print('thread', flush=True))).start()
        threading._register_atexit(print, 'threading')
        """,
    ),
    _interpreter(
        "daemon threads at the exit",
        """
        import threading, time
        def loop():
            while True: time.sleep(0.01)
        for _ in range(3): threading.Thread(target=loop, daemon=True).start()
        print(threading.active_count(), [t.name for t in threading.enumerate()])
        """,
    ),
    _interpreter(
        "thread names, idents and native ids",
        """
        import _thread, os, threading
        print(threading.main_thread().native_id == os.getpid(), threading.current_thread(), _thread._count())
        t = threading.Thread(); print(t.name)
        """,
        masked=without(r"\d{9,}"),
    ),
    _interpreter(
        "depth of the stack",
        """
        import inspect, sys, traceback
        print(len(inspect.stack()), len(traceback.extract_stack()), sys.getrecursionlimit())
        def f(n): return f(n + 1)
        def deepest():
            n = 0
            def g():
                nonlocal n
                n += 1; g()
            try: g()
            except RecursionError: return n
        print(deepest())
        """,
    ),
    _interpreter(
        "gc: objects, callbacks, freeze and thresholds",
        """
        import gc
        print(gc.get_debug(), gc.garbage, gc.callbacks, gc.isenabled(), gc.get_freeze_count())
        seen = []
        gc.callbacks.append(lambda phase, info: seen.append((phase, info['generation'])))
        gc.collect(); gc.freeze(); print(seen, gc.get_freeze_count() > 0); gc.unfreeze()
        """,
    ),
    _interpreter(
        "tracemalloc of the program's own lines",
        """
        import tracemalloc
        print(tracemalloc.is_tracing()); tracemalloc.start()
        held = [bytes(1000) for _ in range(100)]
        shot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
        print([(s.traceback[0].lineno, s.count) for s in shot.statistics('lineno')])
        """,
    ),
    _interpreter(
        "faulthandler's dump after a time",
        """
        import faulthandler, time
        print(faulthandler.is_enabled())
        def work(): time.sleep(0.4)
        faulthandler.dump_traceback_later(0.1); work()
        """,
        masked=lambda out: ADDRESSES.sub(b"N", out),
    ),
    _interpreter(
        "reference counts of common objects",
        """
        import sys
        def f(): pass
        print(sys.getrefcount(f), sys.getrefcount(sys.modules['__main__']), sys.getrefcount(object()),
            sys.getrefcount(open) < 99)
        """,
    ),
    _interpreter(
        "switch interval, intern, hash and int info",
        """
        import sys
        print(sys.getswitchinterval(), sys.intern('a b') is sys.intern('a b'), sys.hash_info, sys.int_info,
            sys.get_int_max_str_digits())
        """,
    ),
    _interpreter(
        "context variables and asyncio's debug mode",
        """
        import asyncio, contextvars
        v = contextvars.ContextVar('v', default=0)
        async def main():
            v.set(1); loop = asyncio.get_running_loop()
            print(loop.get_debug(), type(loop).__name__, len(asyncio.all_tasks()), asyncio.current_task().get_name())
        asyncio.run(main()); print(v.get(), len(contextvars.copy_context()),
            type(asyncio.get_event_loop_policy()).__name__)
        """,
    ),
    _interpreter(
        "subinterpreters",
        """
        import _xxsubinterpreters as s
        i = s.create(); print(len(s.list_all())); s.run_string(i, "import json; print(json.dumps([1]))", None)
        s.destroy(i)
        """,
    ),
    _interpreter(
        "calls into the interpreter by ctypes",
        """
        import ctypes
        api = ctypes.pythonapi
        print(api.Py_IsInitialized(), api.PyGILState_Check(), api.PyRun_SimpleString(b'print(2)'))
        api.Py_AddPendingCall(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0), None)
        """,
    ),
    _interpreter(
        "profilers and tracers that are set for all threads",
        """
        import sys, threading
        print(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
        seen = set()
        threading.setprofile(lambda frame, *_: seen.add(frame.f_code.co_name))
        t = threading.Thread(target=lambda: sorted([2, 1]), name='t'); t.start(); t.join(); print(sorted(seen))
        """,
    ),
    _interpreter(
        "pickle of what __main__ defines",
        """
        import pickle, os, threading
        class Point:
            def __init__(self, x): self.x = x
        def scale(p): return p.x * 2
        data = pickle.dumps((Point(3), scale, os.getpid, os._exit, os.execv, threading.Lock))
        print(len(data), pickle.loads(data)[0].x)
        import pickletools; pickletools.dis(data)
        """,
    ),
    _interpreter(
        "functions of os, time, threading and builtins are Python's own",
        """
        import builtins, os, signal, sys, threading, time
        for m in (os, time, sys, signal, builtins, threading):
            print(m.__name__, [n for n, v in sorted(vars(m).items()) if callable(v) and hasattr(v, '__wrapped__')],
                len(vars(m)) - hasattr(m, '_trainmon_started'))
        """,
    ),
    _interpreter(
        "warnings: filters, and where one is from",
        """
        import warnings
        print(warnings.filters)
        def old(): warnings.warn('old', DeprecationWarning, stacklevel=2)
        old(); warnings.warn('user'); warnings.warn('user')
        """,
    ),
    _interpreter(
        "logging: root, handlers and the last resort",
        """
        import logging
        print(logging.root.handlers, logging.root.level, logging.lastResort); logging.warning('one')
        print(sorted(logging.root.manager.loggerDict))
        """,
    ),
    _interpreter(
        "code.interact and an exec'd console",
        "import code; code.interact('banner', local={'n': 4}, exitmsg='bye')",
        stdin=b"print(n)\n1/0\n",
    ),
    _interpreter(
        "codecs: surrogates, carriage returns and errors",
        r"""
        import sys
        sys.stdout.reconfigure(encoding='utf-16-le', errors='backslashreplace', newline='\r\n')
        print('\u00e9\ud800 end')
        sys.stderr.reconfigure(errors='xmlcharrefreplace', encoding='ascii'); print('\u00e9', file=sys.stderr)
        """,
    ),
    _interpreter(
        "what stdout is in Python",
        """
        import io, sys
        for s in (sys.stdin, sys.stdout, sys.stderr):
            print(s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.fileno(),
                type(s.buffer).__name__)
        """,
    ),
    _interpreter(
        "an exception group with notes and a chain",
        """
        try:
            try: {}['k']
            except KeyError as e: raise ValueError('second') from e
        except ValueError as e: e.add_note('a note'); raise ExceptionGroup('group', [e, TypeError('third')])
        """,
    ),
    _tool(
        "doctest of the program itself",
        'def f():\n    """\n    >>> f()\n    2\n    """\n    return 1\n',
        "-m",
        "doctest",
    ),
    Program(
        "unittest finds its tests",
        "tool",
        (PYTHON, "-m", "unittest", "discover", "-v"),
        files={
            "test_a.py": "import unittest\nclass T(unittest.TestCase):\n def test_x(self): self.assertEqual(1, 2)\n"
            " def test_y(self): pass\n"
        },
        masked=without(r"in \d.*s$"),
    ),
    Program(
        "pytest with a plugin and a failure",
        "tool",
        (PYTHON, "-m", "pytest", "-p", "no:cacheprovider"),
        files={
            "conftest.py": "def pytest_report_header(): return 'own header'\n",
            "test_a.py": "import os\ndef test_x(capfd): os.write(1, b'x'); assert capfd.readouterr()[0] == 'y'\n"
            "def test_y(): pass\n",
        },
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        masked=without(r"in \d+\.\d+s.*", r"0x[0-9a-f]+"),
    ),
    _tool(
        "pdb after an error", "def f(x): return 1 / x\nf(0)", "-m", "pdb", "-c", "continue", stdin=b"p x\nup\nw\nq\n"
    ),
    _tool(
        "cProfile's counts of the program's own functions",
        """
        import cProfile, pstats
        def inner(n): return n * n
        def outer(): return [inner(n) for n in range(9)]
        p = cProfile.Profile(); p.runcall(outer)
        print(sorted((k[2], v[0]) for k, v in pstats.Stats(p).stats.items()))
        """,
    ),
    _tool(
        "compileall, py_compile and tabnanny",
        "",
        "-m",
        "compileall",
        "-q",
        ".",
        files={"near.py": "x = 1"},
        setup="unset PYTHONDONTWRITEBYTECODE",
    ),
    _tool("ensurepip's version and pip check in isolation", "", "-I", "-m", "ensurepip", "--version"),
    _tool("the help of a module by pydoc", '"""What it trains."""\nx = 1\n', "-m", "pydoc", "./train.py"),
    _tool(
        "the modules that a script needs by modulefinder",
        "import near\n",
        "-c",
        "import modulefinder as m; f = m.ModuleFinder(); f.run_script('train.py'); "
        "print(sorted(f.modules)[:40], sorted(f.badmodules)[:9])",
        files={"near.py": ""},
    ),
    Program(
        "python finds its script on stdin, in a heredoc",
        "tool",
        ("/bin/sh", "-c", f"{PYTHON} - a <<'E'\nimport sys; print(sys.argv, __name__)\nE"),
    ),
)
