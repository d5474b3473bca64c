"""Imports: finders, loaders, large libraries, what is loaded at the start, sitecustomize, archives."""

from __future__ import annotations

import sys
from functools import partial

from tests.harmless.compare import Program
from tests.harmless.probe import ADDRESSES, bash, python

_import = partial(python, "import")

PACKAGE = {
    "pack/__init__.py": "from .part import x",
    "pack/part.py": "x = 6",
    "pack/__main__.py": "from . import x\nprint(x, __package__, __spec__.name)",
}
RAISES = "def begin():\n    raise RuntimeError('broken install')\nbegin()\n"
WARNS = (
    "import warnings\nwarnings.warn('pandas is old', DeprecationWarning, stacklevel=2)\nwarnings.warn('plain')\nx = 1\n"
)

PROBES = (
    _import("a large library fails in its import", "import pandas", files={"pandas.py": RAISES}),
    _import("a large library fails by ImportError", "import wandb", files={"wandb.py": "from json import nothing\n"}),
    _import("a large library with a syntax error", "import cv2", files={"cv2.py": "x = = 1\n"}),
    _import("a large library warns its importer", "import pandas; print(pandas.x)", "-Wd", files={"pandas.py": WARNS}),
    _import("a library that we adapt fails in its import", "import datasets", files={"datasets/__init__.py": RAISES}),
    _import(
        "a library that we adapt has nothing of what we adapt",
        "import accelerate, trl, datasets; print(vars(trl)['x'])",
        files={f"{n}/__init__.py": "x = 1" for n in ("accelerate", "trl", "datasets")},
    ),
    _import(
        "a module sees who imports it",
        "import pandas",
        files={
            "pandas.py": """
import sys
frame = sys._getframe()
while frame and 'importlib' in frame.f_code.co_filename or frame.f_globals['__name__'] == 'pandas': frame = frame.f_back
print(frame.f_globals['__name__'], frame.f_lineno)
"""
        },
    ),
    _import(
        "loader and spec of a large library",
        "import pandas",
        files={
            "pandas.py": """
print(type(__loader__), __spec__.loader is __loader__, sorted(vars(__loader__)), __spec__.origin == __file__,
    __cached__ == __spec__.cached)
"""
        },
    ),
    _import(
        "importlib.reload of a large library",
        "import importlib, pandas; importlib.reload(pandas)",
        files={"pandas.py": "print('executed', __name__)"},
    ),
    _import(
        "a large library puts another module in its place",
        "import pandas; print(pandas)",
        files={"pandas.py": "import sys; sys.modules[__name__] = 'other'"},
    ),
    _import(
        "two threads import a large library at once",
        """
        import threading
        def load(): import pandas; print(pandas.x)
        ts = [threading.Thread(target=load) for _ in range(3)]
        for t in ts: t.start()
        for t in ts: t.join()
        """,
        files={"pandas.py": "import time\nprint('once')\ntime.sleep(0.1)\nx = 1\n"},
    ),
    _import(
        "modules and functions named as ours are",
        "import events, session, api, journal, monitor, demo, tests\nprint(events.x, api.x, tests.x, monitor.x)",
        files={f"{n}.py": f"x = {n!r}" for n in ("events", "session", "api", "journal", "monitor", "demo", "tests")},
    ),
    _import(
        "-c imports modules named as ours are",
        "",
        "-c",
        "import imports, exits, cuda; print(imports.x, exits.x, cuda.x)",
        files={f"{n}.py": f"x = {n!r}" for n in ("imports", "exits", "cuda")},
    ),
    _import(
        "a finder in front that prints what is asked",
        """
        import sys
        class Shows:
            @staticmethod
            def find_spec(name, path, target=None): print('asked', name, path)
        sys.meta_path.insert(0, Shows)
        import near, fractions
        """,
        files={"near.py": ""},
    ),
    _import(
        "a finder of frozen-like modules in memory",
        """
        import sys, importlib.abc, importlib.util
        class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path, target=None):
                return importlib.util.spec_from_loader(name, self) if name in ('made', 'pandas') else None
            def exec_module(self, module): module.x = 9
        sys.meta_path.insert(0, Memory())
        import made, pandas; print(made.x, pandas.x, pandas.__spec__)
        """,
        masked=lambda out: ADDRESSES.sub(b"N", out),
    ),
    _import(
        "path hooks and an archive",
        """
        import sys, zipfile
        with zipfile.ZipFile('code.zip', 'w') as z:
            [z.writestr(zipfile.ZipInfo(n), f'x = {n!r}') for n in ('zipped.py', 'pandas.py')]
        sys.path.insert(0, 'code.zip')
        import zipped, pandas; print(zipped.x, pandas.x, type(pandas.__loader__).__name__, len(sys.path_hooks))
        """,
    ),
    _import(
        "modules that are loaded at the start",
        """
        import sys
        print(sorted(set(sys.modules) - {'sitecustomize', 'trainhooks.auto.imports'}))
        """,
    ),
    Program(
        "modules that are loaded at the start of a bare Python",
        "import",
        (
            sys._base_executable,
            "-s",
            "-c",
            "import sys; print(sorted(set(sys.modules) - {'sitecustomize', 'trainhooks.auto.imports'}))",
        ),
    ),  # type: ignore[attr-defined]
    _import(
        "importlib.metadata and entry points",
        """
        from importlib import metadata
        print(sorted(d.metadata['Name'] for d in metadata.distributions()) != [], metadata.version('pip'))
        print(sorted({g for g in metadata.entry_points().groups}))
        """,
    ),
    Program(
        "a user's usercustomize",
        "import",
        (sys._base_executable, "train.py"),
        env={"PYTHONPATH": "u"},
        files={  # type: ignore[attr-defined]
            "train.py": "import sys; print('usercustomize' in sys.modules, marked)",
            "u/usercustomize.py": "import builtins; builtins.marked = 'user'",
        },
    ),
    _import(
        "a lazy loader and find_spec",
        """
        import importlib.util, sys
        spec = importlib.util.find_spec('pandas'); print(spec.name, type(spec.loader).__name__, 'pandas' in sys.modules)
        lazy = importlib.util.LazyLoader(spec.loader); spec.loader = lazy
        module = importlib.util.module_from_spec(spec); sys.modules['pandas'] = module; lazy.exec_module(module)
        print(module.x)
        """,
        files={"pandas.py": "x = 3"},
    ),
    _import(
        "runpy of a path and of a module",
        "import runpy\nprint(runpy.run_path('pandas.py')['x'])\nprint(runpy.run_module('pandas', run_name='n')['x'])",
        files={"pandas.py": "x = __name__"},
    ),
    _import(
        "python -m of a large library's name",
        "",
        "-m",
        "pandas",
        files={"pandas.py": "print(__name__, __spec__.name, __spec__.loader.path[-9:])"},
    ),
    _import(
        "an audit hook sees the same events of an import",
        """
        import sys
        seen = []
        sys.addaudithook(lambda event, args: seen.append(event) if on else None)
        on = True
        import fractions
        on = False
        print(seen)
        """,
    ),
    _import("a package by -m with relative imports", "", "-m", "pack", files=PACKAGE),
    bash(
        "import",
        "a zipapp",
        "touch -d @1000000000 src/*; $PY -m zipapp src -o app.pyz -p $PY && ./app.pyz && $PY app.pyz a",
        files={"src/__main__.py": "import sys, part; print(sys.argv[1:], part.x, __name__)", "src/part.py": "x = 2"},
    ),
    bash(
        "import",
        "a virtual environment made within",
        "$PY -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix[-2:], len(sys.path))' "
        "| sed 's/[0-9]*$//'",
    ),
)
