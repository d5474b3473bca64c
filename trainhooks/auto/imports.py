"""Import hooks: load the adapter of a framework when a program imports that framework.

Every interpreter under `trainmon run` executes this file at its start, by its path. So it imports only what an
interpreter loads anyway, and nothing else of `trainhooks` before a training library shows up. Not even `__future__` or
`importlib.machinery`: a program that forgot to import such a module would work here, and fail elsewhere.
"""

import os
import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident
from time import monotonic_ns, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Optional

    Hook = Callable[[ModuleType], Any]

_AUTO = os.path.dirname(os.path.abspath(__file__))
# A file `NAME_adapter.py` in this folder adapts the package NAME; there is no other registration.
ADAPTERS = os.path.join(_AUTO, "adapters")
SUFFIX = "_adapter"

# Libraries whose import takes long enough to be a span of its own in the start-up.
# fmt: off
LARGE = frozenset((
    "torch", "torch._dynamo", "torchvision", "torchaudio", "transformers", "datasets", "trl", "lightning",
    "pytorch_lightning", "accelerate", "peft", "deepspeed", "diffusers", "timm", "bitsandbytes", "vllm",
    "wandb", "cv2", "tensorflow", "jax", "keras", "sklearn", "scipy", "pandas",
))
# fmt: on
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"

SPAN = 6  # as in `lane_entries`, which is loaded only with a training library

# In the run's directory: imports of processes that have not announced themselves, one line each for begin and end.
STARTING = "starting"  # as in `protocol.rundir`
MAX_STARTING = 64 * 1024  # bytes, of all processes; likewise

# The directory of the launcher's `trainhooks`. It never goes on sys.path: a whole environment may lie beside it.
_HOME = os.path.dirname(os.path.dirname(_AUTO))
_MARK = os.path.join("auto", "bootstrap", "sitecustomize.py")  # only trainmon's `trainhooks` has it, in every version
OWN_TRAINHOOKS = "own-trainhooks"  # the note's code, and its journal's name
MAX_DIRECTORIES = 100  # searched for Python files: a few milliseconds on a slow disk

_adapters: "set[str]" = set()  # packages that have an adapter which is not loaded yet
_waiting: "dict[str, list[Hook]]" = {}  # by the module that they wait for
_installed = False
_loading = False  # an adapter is being imported
_shadowed = False  # the program has a module `trainhooks` of its own
_searches: "set[tuple[int, str]]" = set()  # under way, by thread and module
_early: "list[tuple[Any, ...]]" = []  # imports before there is a lane
_put: "Callable[[tuple[Any, ...]], None]" = _early.append
MAIN_THREAD = get_ident()


def install() -> None:
    """Find the adapters and watch imports, once: the bootstrap calls this before the program's first line."""
    global _installed
    if _installed:
        return
    _installed = True
    names = (os.path.splitext(name)[0] for name in os.listdir(ADAPTERS))
    _adapters.update(name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX))
    for package in sorted(_adapters):
        if package in sys.modules:
            _load_adapter(package)
        else:
            _waiting[package] = []
    sys.meta_path.insert(0, FINDER)


def when_imported(module: str) -> "Callable[[Hook], Hook]":
    """Have the decorated function called with `module` after its import, or after that of the adapter if it is later.

    What the function raises is swallowed, unless TRAINMON_DEBUG is set.
    """

    def register(hook: "Hook") -> "Hook":
        _waiting.setdefault(module, []).append(hook)
        if not _loading:  # else the rest of the adapter, which the function may call, is not there yet
            _call_hooks()
        return hook

    return register


def _call_hooks() -> None:
    """Call the hooks of all modules that have been imported completely."""
    for name in list(_waiting):
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            for hook in _waiting.pop(name, ()):
                _call_guarded(hook, module)


def route_spans(put: "Callable[[tuple[Any, ...]], None]") -> None:
    """Put the spans of imports through `put` from here on, beginning with those so far."""
    global _put
    for entry in _early:
        put(entry)
    _early.clear()
    _put = put


def _load_adapter(package: str) -> None:
    global _loading
    _adapters.discard(package)
    if _is_shadowed():
        return
    _loading = True
    try:
        _call_guarded(__import__, f"trainhooks.auto.adapters.{package}{SUFFIX}")
    finally:
        _loading = False
    _call_hooks()


def _call_guarded(function: "Callable[[Any], Any]", argument: "Any") -> None:
    """Call `function(argument)` and swallow errors: an unknown version of a framework may only cost readings."""
    try:
        function(argument)
    except Exception as error:  # an adapter meets frameworks that nobody tested it with; the import must not fail
        _take(error)
        if os.environ.get("TRAINMON_DEBUG"):
            raise


def _take(error: Exception) -> None:
    """Take an error of ours; one that a signal handler of the program raised is raised again."""
    if not _shadowed:
        from trainhooks.program_errors import pass_on

        pass_on(error)


# A program with its own module `trainhooks`: importing ours by that name would run the program's


def _is_shadowed() -> bool:
    global _shadowed
    if _shadowed:
        return True
    loaded = sys.modules.get("trainhooks")
    try:
        theirs = _foreign_path(getattr(loaded, "__spec__", None)) if loaded is not None else _find_foreign()
    except Exception:  # a foreign finder or spec may raise anything
        theirs = None
    if theirs is None:
        return False
    _shadowed = True
    _waiting.clear()
    _adapters.clear()
    sys.modules.pop("trainhooks.auto.imports", None)  # it was loaded under the name of their package
    _note_shadowed(theirs)
    return True


def _find_foreign() -> "Optional[str]":
    """Return the path of the program's own `trainhooks`; None if it has none."""
    search = (get_ident(), "trainhooks")
    if search in _searches:  # by a finder that asks all others, or that holds ours
        return None
    _searches.add(search)
    try:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find("trainhooks", None) if find is not None and finder is not Home else None
            if spec is not None and (path := _foreign_path(spec)) is not None:
                return path
    finally:
        _searches.discard(search)
    return None


def _foreign_path(spec: "Optional[ModuleSpec]") -> "Optional[str]":
    """Return the path of a module `trainhooks` that is no version of ours; None for ours, and for no module."""
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    if any(os.path.isfile(os.path.join(place, _MARK)) for place in places):
        return None
    if spec.has_location:
        return spec.origin
    return next(filter(_holds_modules, places), None)  # a directory of that name, which may hold anything


def _holds_modules(directory: str) -> bool:
    """Return whether there are Python files in or below a directory, within the first MAX_DIRECTORIES."""
    for count, (_, _, names) in enumerate(os.walk(directory)):
        if count == MAX_DIRECTORIES:
            break
        if any(name.endswith(".py") for name in names):
            return True
    return False


def _note_shadowed(path: str) -> None:
    """Write a note that the hooks are off, once a run, to a journal of its own: none of our modules can be imported."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "/._- ") else "?" for c in path)
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
    except Exception:  # another process of the run has written it, there is no run directory, or files are forbidden
        pass


class Home:
    """Find the launcher's `trainhooks`, unless the program has a module of that name. Asked before other finders."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Optional[ModuleSpec]":
        return PathFinder.find_spec(name, [_HOME]) if name == "trainhooks" and not _is_shadowed() else None


def _write_start(name: str) -> bool:
    """Write that the import `name` begins, so that viewers see it before this process reports; "" ends the last one.

    The file is written by the program's own process and not kept open: a few dozen lines, 20 us each.
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
    except Exception as error:  # a full disk, a run that was removed, or files that the program forbids
        _take(error)
        return False
    return True


class _Finder:
    """Find nothing itself: let the other finders find a watched module, and run our hooks after it."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Optional[ModuleSpec]":
        if name not in _waiting and name not in LARGE:
            return None
        search = (get_ident(), name)
        if search in _searches:  # by a finder that asks all others, or that holds this one
            return None
        _searches.add(search)
        try:
            spec = self._find(name, path, target)
        finally:
            _searches.discard(search)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _wrap_loader(spec)
        return spec

    def _find(self, name: str, path: "Any", target: "Any") -> "Optional[ModuleSpec]":
        """Return what the finders behind this one find: those before it have been asked, and may be asking it."""
        finders: list[Any] = list(sys.meta_path)
        own = next((index for index, finder in enumerate(finders) if finder is self), -1)  # -1: another holds it
        for finder in finders[own + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


def _wrap_loader(spec: "ModuleSpec") -> None:
    """Have our hooks run after the module of `spec`."""
    loader: Any = spec.loader
    own = getattr(loader, "__dict__", {})
    if own.get("name") != spec.name or "exec_module" in own:  # it may be that of other modules, or another tool's
        spec.loader = _Loader(loader)  # type: ignore[assignment]
        return

    def exec_module(module: "ModuleType") -> None:
        own.pop("exec_module", None)  # the module may look at its loader
        _execute(loader, module)

    _hide_frames(exec_module)
    loader.exec_module = exec_module  # it keeps its class, which tools look at


def _execute(loader: "Any", module: "ModuleType") -> None:
    """Execute a module by its own loader, and then our hooks."""
    name = module.__name__
    if name in _adapters:  # before its submodules are imported, which the adapter's hooks wait for
        _load_adapter(name)
    if name in LARGE and get_ident() == MAIN_THREAD:
        _put((SPAN, monotonic_ns(), f"import {name}"))
        is_shown = _write_start(f"import {name}")
        try:
            loader.exec_module(module)
        finally:
            _put((None, monotonic_ns()))
            if is_shown:
                _write_start("")
    else:
        loader.exec_module(module)
    for hook in _waiting.pop(name, ()):
        _call_guarded(hook, module)


def _hide_frames(function: "Callable[..., Any]") -> None:
    """Have Python leave a function out of tracebacks and of the counting of a warning's `stacklevel`.

    It knows the import system's own frames by the name of their file. With others between them, it shows them all.
    """
    function.__code__ = function.__code__.replace(co_filename=_IMPORT_SYSTEM)


_hide_frames(_execute)


class _Loader:
    """The module's own loader, followed by our hooks. It removes itself before the module can see it."""

    def __init__(self, theirs: "Any") -> None:
        self._theirs = theirs

    def create_module(self, spec: "ModuleSpec") -> "Any":
        return self._theirs.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._theirs
        spec: Any = module.__spec__
        if getattr(spec, "loader", None) is self:  # else it is another tool's, which holds this one
            spec.loader = self._theirs
        _execute(self._theirs, module)

    _hide_frames(exec_module)

    def __getattr__(self, name: str) -> "Any":
        if name == "_theirs":  # in a copy that is being made
            raise AttributeError(name)
        return getattr(self._theirs, name)


FINDER = _Finder()
