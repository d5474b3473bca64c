"""Calls of ours that follow the first import of a module of someone else's.

Loaded at the start of every interpreter under `trainmon run`, by its path: nothing is imported here that an
interpreter does not load anyway, nor is the rest of `trainhooks`, before a training library shows up.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from importlib.machinery import PathFinder
from itertools import islice
from time import monotonic_ns, time

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

# Where the launcher's `trainhooks` lies. Beside it may lie a whole environment that is not this one's: this never goes
# on sys.path.
_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_MARK = os.path.join("auto", "bootstrap", "sitecustomize.py")  # what any version of it has, and nobody else's module
OWN_TRAINHOOKS = "own-trainhooks"  # the note's code, and its journal's name
MOST_LOOKS = 100  # directories looked into: a few milliseconds on a slow disk

_waiting: dict[str, list[str]] = {}
_off = False  # the program has a module `trainhooks` of its own
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
        if _given_way():
            return
        __import__(ours)
        sys.modules[ours].install(module)
    except Exception:  # a version of a framework that we do not know must cost readings, never the training
        if os.environ.get("TRAINMON_DEBUG"):
            raise


def _given_way() -> bool:
    """Whether `trainhooks` is the program's own module here: to import ours by that name would run theirs."""
    global _off
    if _off:
        return True
    loaded = sys.modules.get("trainhooks")
    theirs = _place(getattr(loaded, "__spec__", None)) if loaded is not None else _found()
    if theirs is None:
        return False
    _off = True
    _waiting.clear()
    sys.modules.pop("trainhooks.auto.imports", None)  # what was loaded in their package's name
    _note(theirs)
    return True


def _found() -> Optional[str]:
    """Where the program's own `trainhooks` would be found; None where it has none."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find("trainhooks", None) if find is not None and finder not in (Home, FINDER) else None
        if spec is not None and (place := _place(spec)) is not None:
            return place
    return None


def _place(spec: Optional[ModuleSpec]) -> Optional[str]:
    """Where a module `trainhooks` lies that is not ours, of whatever version; None of ours, and of no module."""
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    if any(os.path.isfile(os.path.join(place, _MARK)) for place in places):
        return None
    if spec.has_location:
        return spec.origin
    return next(filter(_holds_modules, places), None)  # a directory of that name, which may hold anything


def _holds_modules(directory: str) -> bool:
    """Whether there is Python in a directory, or in those in it, as far as one looks while a program waits."""
    return any(name.endswith(".py") for _, _, names in islice(os.walk(directory), MOST_LOOKS) for name in names)


def _note(place: str) -> None:
    """Tell those who watch, once a run, in a journal of this note's own: no module of ours can be had here."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "/._- ") else "?" for c in place)
    text = (
        "trainmon's hooks are off: the program has its own module `trainhooks`. Only printed lines are read. "
        f"Rename that module to have steps timed: {name}"
    )
    head = f'"producer":"{OWN_TRAINHOOKS}","t":{monotonic_ns() / 1e9:.6f}'
    lines = (
        f'{{"kind":"hello",{head},"seq":0,"source":"recorder","wall":{time():.6f},"pid":{os.getpid()}}}\n'
        f'{{"kind":"note",{head},"seq":1,"level":"warning","code":"{OWN_TRAINHOOKS}","text":"{text}"}}\n'
        f'{{"kind":"bye",{head},"seq":2}}\n'
    )
    try:
        path = os.path.join(os.environ["TRAINMON_RUN"], f"{OWN_TRAINHOOKS}.jsonl")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, lines.encode())
        finally:
            os.close(file)
    except (OSError, KeyError):  # told by another process of the run, or there is nowhere to tell it
        pass


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


class Home:
    """Finds the launcher's `trainhooks`, unless the program has a module of that name. Asked before other finders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        return PathFinder.find_spec(name, [_HOME]) if name == "trainhooks" and not _given_way() else None


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
