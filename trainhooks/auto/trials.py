"""Change settings of a program for `trainmon try`. This is the only place where trainmon changes what a program does.

It is loaded only where the environment has TRAINMON_TRY. What takes effect is written into the run's directory, so that
nothing is measured that was not applied.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from typing import Any, Callable, Dict, List, Set

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import replace_function
from trainhooks.protocol import rundir, trial_settings
from trainhooks.protocol.trial_settings import Settings

LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")  # else torch refuses
ARGUMENTS = ("logging_steps", "save_steps", "eval_steps")

_told: Set[str] = set()


def install(torch: Any) -> None:
    """Arm the settings of the environment, once torch has been imported. Those that are not known change nothing."""
    try:
        settings = trial_settings.decode(os.environ.get(trial_settings.VARIABLE, ""))
    except trial_settings.BadSetting as error:
        sys.stderr.write(f"trainmon: {error}\n")
        return
    _set_torch(torch, settings)
    if any(name in settings for name in LOADER):

        @when_imported("torch.utils.data.dataloader")
        def change_loaders(module: Any) -> None:
            _change_calls(module.DataLoader, "__init__", functools.partial(_loader_arguments, settings))

    if "use_cache" in settings:

        @when_imported("transformers.generation.utils")
        def change_generation(module: Any) -> None:
            _change_calls(module.GenerationMixin, "generate", functools.partial(_set_keyword, settings, "use_cache"))

    if any(name in settings for name in ARGUMENTS):

        @when_imported("transformers.training_args")
        def change_arguments(module: Any) -> None:
            _change_arguments(module.TrainingArguments, settings)


def tell_saves(torch: Any) -> None:
    """Have Python's audit hooks told of `torch.save`, whose own C++ code opens the file."""

    def tell(original: Any, args: Any, kwargs: Any) -> Any:
        target = kwargs.get("f", args[1] if len(args) > 1 else None)
        if isinstance(target, (str, os.PathLike)):
            sys.audit("open", os.fspath(target), "wb", os.O_WRONLY | os.O_CREAT)
        return args, kwargs

    _change_calls(torch, "save", tell)


def _tell(name: str, value: object) -> None:
    """Write that a setting found its place, once a process."""
    run = os.environ.get(rundir.RUN_VARIABLE)
    if not run or name in _told:
        return
    _told.add(name)
    try:
        file = os.open(os.path.join(run, trial_settings.APPLIED), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{name}={value}\n".encode())
        finally:
            os.close(file)
    except OSError:  # a full disk: the trial then says that it was not applied
        pass


def _change_calls(owner: Any, name: str, change: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
    """Have the arguments of a function changed; `change` returns those to call it with."""
    original = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = change(original, args, kwargs)
        return original(*args, **kwargs)

    replace_function(owner, name, wrapper)


def _loader_arguments(settings: Settings, init: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        signature = inspect.signature(init)
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # a mistake of the program, which torch tells it
        return args, kwargs
    given: Dict[str, Any] = bound.arguments
    inside = given.pop("kwargs", {})  # of a subclass that passes them on
    wanted = {name: settings[name] for name in LOADER if name in settings}
    if not wanted.get("num_workers", given.get("num_workers", 0)):
        wanted = {name: value for name, value in wanted.items() if name not in NEED_WORKERS}
        for name in NEED_WORKERS:
            given.pop(name, None)
    for name, value in wanted.items():
        _tell(name, value)
    given.update(wanted)
    own = given.pop(next(iter(bound.signature.parameters)))
    return (own,), {**given, **inside}


def _set_keyword(settings: Settings, name: str, original: Any, args: Any, kwargs: Any) -> Any:
    _tell(name, settings[name])
    return args, {**kwargs, name: settings[name]}


def _change_arguments(kind: Any, settings: Settings) -> None:
    check = kind.__post_init__

    def __post_init__(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in ARGUMENTS:
            if name in settings:
                setattr(self, name, settings[name])
                _tell(name, settings[name])
        return check(self, *args, **kwargs)

    replace_function(kind, "__post_init__", __post_init__)


# torch's own


def _set_torch(torch: Any, settings: Settings) -> None:
    """Apply what is set once; a later call of the program that sets it otherwise changes nothing."""
    if "threads" in settings:
        torch.set_num_threads(settings["threads"])
        _keep(torch, "set_num_threads", "threads", settings)
    if "matmul_precision" in settings:
        torch.set_float32_matmul_precision(settings["matmul_precision"])
        _keep(torch, "set_float32_matmul_precision", "matmul_precision", settings)
    if "cudnn_benchmark" in settings:
        torch.backends.cudnn.benchmark = settings["cudnn_benchmark"]
        _tell("cudnn_benchmark", settings["cudnn_benchmark"])
    if "detect_anomaly" in settings:
        replace_function(torch, "set_anomaly_enabled", _does_nothing("detect_anomaly"))
    if "profiler" in settings:  # it begins and ends, and records nothing
        for name in ("start", "stop", "step"):
            replace_function(torch.profiler.profile, name, _does_nothing("profiler"))
    if "gc_collect" in settings:
        replace_function(gc, "collect", _does_nothing("gc_collect", 0))
    if "fused" in settings or "foreach" in settings or "compile" in settings:
        _change_optimizers(torch, settings)
    if "compile_dynamic" in settings:
        _change_calls(torch, "compile", functools.partial(_set_dynamic, settings))


def _keep(owner: Any, name: str, setting: str, settings: Settings) -> None:
    """Have a function do nothing in this process: a loader's worker sets its own threads."""
    own, original = os.getpid(), getattr(owner, name)

    def keep(*args: Any, **kwargs: Any) -> Any:
        return None if os.getpid() == own else original(*args, **kwargs)

    replace_function(owner, name, keep)
    _tell(setting, settings[setting])


def _does_nothing(setting: str, result: Any = None) -> Callable[..., Any]:
    def does_nothing(*_: Any, **__: Any) -> Any:
        _tell(setting, False)
        return result

    return does_nothing


def _set_dynamic(settings: Settings, original: Any, args: Any, kwargs: Any) -> Any:
    _tell("compile_dynamic", settings["compile_dynamic"])
    return args, {**kwargs, "dynamic": settings["compile_dynamic"]}


def _change_optimizers(torch: Any, settings: Settings) -> None:
    kinds: List[Any] = [one for one in vars(torch.optim).values() if isinstance(one, type)]
    wanted: Settings = {name: settings[name] for name in ("fused", "foreach") if name in settings}
    if wanted.get("fused") is True:
        wanted["foreach"] = False  # torch refuses both
    for kind in kinds:
        if wanted and "fused" in inspect.signature(kind.__init__).parameters:
            _change_calls(kind, "__init__", functools.partial(_optimizer_arguments, wanted))
    if "compile" in settings:
        base = torch.optim.Optimizer
        init = base.__init__

        def __init__(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            params = list(params)  # it may be a generator, and is read twice
            for module in _roots(torch, params):  # before the hooks see the model, as if its program did it
                module.compile()
                _tell("compile", True)
            init(self, params, *args, **kwargs)

        replace_function(base, "__init__", __init__)


def _optimizer_arguments(wanted: Settings, init: Any, args: Any, kwargs: Any) -> Any:
    for name, value in wanted.items():
        _tell(name, value)
    return args, {**kwargs, **wanted}


def _roots(torch: Any, params: List[Any]) -> List[Any]:
    """Return the modules that hold an optimizer's parameters and lie in no other module."""
    groups = [group["params"] if isinstance(group, dict) else group for group in params]
    ids = {id(one) for group in groups for one in (group if isinstance(group, (list, tuple)) else [group])}
    modules = [one for one in gc.get_objects() if isinstance(one, torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    outer = [module for module in modules if id(module) not in inner]
    return [one for one in outer if any(id(parameter) in ids for parameter in one.parameters())]
