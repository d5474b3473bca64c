"""Python imports this at its start when `trainmon run` has put this directory on PYTHONPATH.

It must be harmless in every process it meets: launchers, compilers, pip, tests. So it loads one small file, which
waits for the import of a training library. Standard library only, and little of that: it is in every start's way.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_AUTO = os.path.dirname(_HERE)


def _load(name: str, path: str) -> Any:
    loader = SourceFileLoader(name, path)
    module = type(sys)(name)
    module.__spec__ = ModuleSpec(name, loader, origin=path)
    module.__file__ = path
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _shadowed() -> None:
    """Run the sitecustomize that this one stands before, as if it had been found."""
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(_HERE)]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.origin is not None:
        _load("sitecustomize", spec.origin)


if os.environ.get("TRAINMON_RUN"):
    try:
        imports = _load("trainhooks.auto.imports", os.path.join(_AUTO, "imports.py"))
        sys.meta_path.insert(0, imports.Home)
        imports.install()
    except Exception:  # whatever is wrong with trainmon, the program that starts here must not suffer from it
        if os.environ.get("TRAINMON_DEBUG"):
            raise
_shadowed()
