"""Calls of ours that follow the first import of a module of someone else's.

Loaded at the start of every interpreter under `trainmon run`, by its path: nothing is imported here that an
interpreter does not load anyway, nor is the rest of `trainhooks`, before a training library shows up.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# When the module on the left has been imported, `install(module)` of our module on the right is called.
ADAPTERS = (("torch.optim.optimizer", "boundaries"),)

_waiting: dict[str, list[str]] = {}


def install() -> None:
    """Arm everything. Called once, by the bootstrap, before the program's first line."""
    for module, ours in ADAPTERS:
        when_imported(module, f"trainhooks.auto.{ours}")
    sys.meta_path.insert(0, FINDER)


def when_imported(module: str, ours: str) -> None:
    """Arrange that `install(module)` of our module `ours` is called after `module` has been imported (now, if it has
    been). Ours is not loaded before that. What it raises is swallowed, unless TRAINMON_DEBUG is set.
    """
    loaded = sys.modules.get(module)
    if loaded is not None:
        _call(ours, loaded)
    else:
        _waiting.setdefault(module, []).append(ours)


def _call(ours: str, module: ModuleType) -> None:
    try:
        __import__(ours)
        sys.modules[ours].install(module)
    except Exception:  # a version of a framework that we do not know must cost readings, never the training
        if os.environ.get("TRAINMON_DEBUG"):
            raise


class _Finder:
    """Finds nothing by itself: lets the others find a module that is waited for, and wraps its loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The module's own loader, and afterwards our calls. It steps aside before the module can see it."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._theirs.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._theirs
        if module.__spec__ is not None:
            module.__spec__.loader = self._theirs
        self._theirs.exec_module(module)
        for ours in _waiting.pop(module.__name__, ()):
            _call(ours, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


FINDER = _Finder()
