"""Start the import hooks: Python imports this file when `trainmon run` has put its directory on PYTHONPATH.

It must be harmless in every process: launchers, compilers, pip, tests. So it loads one small file, which waits for the
import of a training library. Standard library only, and little of that: it delays every start of an interpreter.

Other tools start in the same way, and each runs the sitecustomize that it hides: theirs may run this one, and this one
theirs, in any order, and the one of another installation of trainmon as well.
"""

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

_NAME = "sitecustomize"
_IMPORTS = "trainhooks.auto.imports"
_MARK = "_trainmon_started"  # on `sys`, which all copies of this file share
_HERE = os.path.dirname(os.path.abspath(sys._getframe().f_code.co_filename))  # __file__ may be another tool's


def _start() -> None:
    """Install the import hooks, once in an interpreter: those of the innermost run, which come first on the path."""
    if not os.environ.get("TRAINMON_RUN") or hasattr(sys, _MARK) or _IMPORTS in sys.modules:
        return
    setattr(sys, _MARK, _HERE)
    try:
        imports = _load(_IMPORTS, os.path.join(os.path.dirname(_HERE), "imports.py"))
        sys.meta_path.insert(0, imports.Home)
        imports.install()
        if os.environ.get("TRAINMON_TRY_WRITES"):
            name = "trainhooks.auto.file_writes"
            _load(name, os.path.join(os.path.dirname(_HERE), "file_writes.py")).watch(os.environ["TRAINMON_RUN"])
        if os.environ.get("TRAINMON_LINES"):
            _print_by_line(os.environ["TRAINMON_RUN"])
    except Exception:  # an error of trainmon must not stop the program
        if os.environ.get("TRAINMON_DEBUG"):
            raise


def _print_by_line(run: str) -> None:
    """Print line by line, as on a terminal, where the output goes to a file of the run."""
    out = os.fstat(1)
    for name in ("console.log", "stdout.log"):
        path = os.path.join(run, name)
        if os.path.exists(path) and os.path.samestat(out, os.stat(path)):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _load(name: str, path: str) -> "Any":
    loader = SourceFileLoader(name, path)
    module = type(sys)(name)
    module.__spec__ = ModuleSpec(name, loader, origin=path)
    module.__file__ = path
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _run_hidden() -> None:
    """Import the sitecustomize that this one hides, as if this one did not exist.

    Those that are being run are left out: one that stays on the path while it runs this one would be run again.
    """
    before, module = list(sys.path), sys.modules.pop(_NAME, None)
    running = {os.path.realpath(_HERE), *_running()}
    sys.path[:] = rest = [entry for entry in before if os.path.realpath(entry or ".") not in running]
    try:
        __import__(_NAME)
    except ImportError as error:
        if error.name != _NAME:
            raise
    finally:
        if sys.path == rest:
            sys.path[:] = before
        else:  # it has changed the path: only what was left out comes back
            for index, entry in enumerate(before):
                if entry not in rest:
                    sys.path.insert(index, entry)
        if module is not None and (_NAME not in sys.modules or not _is_ours(module)):
            sys.modules[_NAME] = module


def _is_ours(module: "Any") -> bool:
    """Return whether a module stands for this file; if not, another tool has executed this file in its own name."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
    return os.path.realpath(os.path.dirname(origin)) == os.path.realpath(_HERE)


def _running() -> "Iterator[str]":
    """Return the directories of all files of this name that are being run."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        directory, name = os.path.split(frame.f_code.co_filename)
        if name == _NAME + ".py":
            yield os.path.realpath(directory or ".")
        frame = frame.f_back


_start()
_run_hidden()
