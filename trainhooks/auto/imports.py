"""Calls of ours that follow the first import of a module of someone else's.

Loaded at the start of every interpreter under `trainmon run`, by its path: nothing is imported here that an
interpreter does not load anyway, nor is the rest of `trainhooks`, before a training library shows up.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Optional

# When the module on the left has been imported, `install(module)` of our module on the right is called.
ADAPTERS = (
    ("torch", "boundaries"),
    ("torch.amp.autocast_mode", "precision"),
    ("transformers.trainer", "transformers"),
    ("transformers.generation.utils", "generation"),
    ("trl.extras.profiling", "trl"),
    ("lightning.pytorch.trainer.trainer", "lightning"),
    ("pytorch_lightning.trainer.trainer", "lightning"),
    ("accelerate.accelerator", "accelerate"),
    ("transformers.modeling_utils", "hub"),
    ("transformers.models.auto.auto_factory", "hub"),
    ("transformers.tokenization_utils_base", "hub"),
    ("transformers.models.auto.tokenization_auto", "hub"),
    ("transformers.models.auto.configuration_auto", "hub"),
    ("transformers.processing_utils", "hub"),
    ("peft.peft_model", "hub"),
    ("huggingface_hub.file_download", "hub"),
    ("datasets.arrow_dataset", "hub"),
)

# Libraries whose import takes long enough to be told apart in a start-up.
# fmt: off
LARGE = frozenset((
    "torch", "torch._dynamo", "torchvision", "torchaudio", "transformers", "datasets", "trl", "lightning",
    "pytorch_lightning", "accelerate", "peft", "deepspeed", "diffusers", "timm", "bitsandbytes", "vllm",
    "wandb", "cv2", "tensorflow", "jax", "keras", "sklearn", "scipy", "pandas",
))
# fmt: on
SPAN = 6  # as in `entries`, which is not loaded before a training library is

# In the run's directory: what its processes import before they show themselves, a line a begin and a line an end.
STARTING = "starting"
MAX_STARTING = 64 * 1024  # bytes, of all processes

_waiting: dict[str, list[str]] = {}
_early: list[tuple[Any, ...]] = []  # imports before there is a lane
_tell: Callable[[tuple[Any, ...]], None] = _early.append
_thread = get_ident()  # the main one


def install() -> None:
    """Arm everything. Called once, by the bootstrap, before the program's first line."""
    for module, ours in ADAPTERS:
        when_imported(module, f"trainhooks.auto.{ours}")
    sys.meta_path.insert(0, FINDER)


def tell_to(put: Callable[[tuple[Any, ...]], None]) -> None:
    """Where imports are told from here on, beginning with those that have been told already."""
    global _tell
    for entry in _early:
        put(entry)
    _early.clear()
    _tell = put


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


def _show(name: str) -> bool:
    """Let those who watch see what takes so long, as long as this process is silent. An empty name ends the last one.

    The file lies where the program's own output goes, and is not kept open: a few dozen lines, 20 us each.
    """
    run = os.environ.get("TRAINMON_RUN")
    if not run:
        return False
    try:
        file = os.open(os.path.join(run, STARTING), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if name and os.fstat(file).st_size > MAX_STARTING:
                return False
            os.write(file, f"{os.getpid()} {monotonic_ns()} {name}\n".encode())
        finally:
            os.close(file)
    except OSError:  # a full disk, a run that was removed: then nobody sees it
        return False
    return True


class _Finder:
    """Finds nothing by itself: lets the others find a module that is waited for, and wraps its loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in _waiting and name not in LARGE:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: Optional[ModuleSpec] = find(name, path, target)
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
        name = module.__name__
        if name in LARGE and get_ident() == _thread:
            _tell((SPAN, monotonic_ns(), f"import {name}"))
            is_shown = _show(f"import {name}")
            try:
                self._theirs.exec_module(module)
            finally:
                _tell((None, monotonic_ns()))
                if is_shown:
                    _show("")
        else:
            self._theirs.exec_module(module)
        for ours in _waiting.pop(name, ()):
            _call(ours, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


FINDER = _Finder()
