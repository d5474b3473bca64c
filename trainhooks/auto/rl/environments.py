"""The steps of environments, reported to the tracker's rollouts: what the adapters of environment libraries use.

Classes of a library are wrapped; the program's own only where they call their base's `reset` and no wrapper holds them.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import call_safely, failed, framework, put_facts, wrap
from trainhooks.auto.rl import acting
from trainhooks.auto.rl.instances import Instance
from trainhooks.auto.rl.rollouts import Rollouts
from trainhooks.lane_entries import host_clock
from trainhooks.program_errors import until_gone

WRAPPERS = ("Wrapper", "VectorWrapper")  # base classes of those around an environment, the program's own among them
MAX_ENV_WRAPPERS = 20  # around an environment; a program has a handful


class _Here:
    """What one thread does with environments."""

    __slots__ = ("acting", "alone", "depth", "instance", "rollouts", "since", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.depth = 0  # wrappers step and reset what they wrap
        self.instance: Optional[Instance] = None  # the one that is stepped, if that is counted
        self.rollouts: Any = None  # where
        self.since = 0  # when that began
        self.acting: Optional[acting.Acting] = None  # takes its steps, where it does not train
        self.alone = False  # it is the thread that would train


class _Threads(threading.local):
    def __init__(self) -> None:
        self.here = _Here()


class _Watch:
    """The calls of environments. It is not saved with the functions that hold it."""

    def __init__(self) -> None:
        self.threads = _Threads()
        self.instances: Dict[int, Instance] = {}  # those alive, by id
        self.described: Optional[Tuple[type, int]] = None  # the environment that the facts tell of
        self.is_worker: Optional[bool] = None  # of a vector; None: not looked at
        os.register_at_fork(after_in_child=self._forked)

    def __reduce__(self) -> Any:
        return type(None), ()

    def _forked(self) -> None:
        self.threads, self.is_worker = _Threads(), None
        self.instances.clear()  # the parent counts what was stepped there

    def rollouts(self, here: _Here) -> Any:
        """Return the rollouts of the calling thread; of the tracker's, off its fast path. None: nothing is recorded."""
        tracker = framework.tracker
        if tracker is None:  # no torch
            if self.is_worker is None:
                self.is_worker = acting.is_vector_worker()
            if here.acting is None and not self.is_worker:
                here.acting = acting.Acting(None, host_clock())
            return here.acting
        if tracker.silent:
            return None
        if tracker.thread == here.thread:
            if here.alone:
                if not tracker.fast_path.steps:
                    return here.acting
                here.alone = False
            tracker.fast_path.leave()
            return tracker.rollouts
        if here.acting is None or here.acting.rollouts is not tracker.rollouts:
            here.acting = tracker.rollouts.works_beside(host_clock())
        return here.acting

    def instance(self, environment: Any) -> Instance:
        key = id(environment)
        found = self.instances.get(key)
        if found is None:
            found = self.instances[key] = Instance(until_gone(environment, self.instances, key))
        return found

    def begins(self, here: _Here, environment: Any) -> None:
        """Record the begin of a step of an outermost environment."""
        try:
            here.instance = None
            rollouts = here.rollouts = self.rollouts(here)
            if rollouts is not None:
                here.depth = 1
                here.since = t = host_clock()
                instance = self.instances.get(id(environment)) or self.instance(environment)
                if rollouts.env_step_begins(instance, t):
                    here.instance = instance
        except Exception as error:  # an environment of a foreign class may raise anything
            failed(error)

    def fails(self, here: _Here, error: BaseException) -> None:
        here.depth = 0
        unseen.drop_own_frames(error)

    def ends(self, here: _Here, environment: Any, result: Any) -> None:
        t = host_clock()
        here.depth = 0
        instance = here.instance
        if instance is not None:
            try:
                instance.steps(environment, result, t - here.since)
                here.rollouts.env_step_ends(instance, t)
                if instance.size != instance.described:
                    self._describe(environment, instance)
            except Exception as error:  # likewise
                failed(error)

    def resets(self, here: _Here, environment: Any, options: Any) -> None:
        """Record the begin of a reset of an outermost environment."""
        try:
            rollouts = self.rollouts(here)
            if rollouts is not None:
                instance = self.instance(environment)
                instance.resets(options.get("reset_mask") if isinstance(options, dict) else None)
                t = host_clock()
                rollouts.env_resets(instance, t)
                if isinstance(rollouts, Rollouts) and (alone := rollouts.acts_alone(t)) is not None:
                    here.acting, here.alone = alone, True
        except Exception as error:  # likewise
            failed(error)

    def _describe(self, environment: Any, instance: Instance) -> None:
        instance.described = instance.size
        if self.described != (type(environment), instance.size):
            self.described = type(environment), instance.size
            _describe(environment, instance)


def _describe(environment: Any, instance: Instance) -> None:
    """Record what is stepped: how many environments, in how many processes beside this one."""
    inside, processes = environment, 0
    for _ in range(MAX_ENV_WRAPPERS):
        found = getattr(inside, "__dict__", {})
        workers = found.get("processes")
        if isinstance(workers, (list, tuple)):
            processes = len(workers)
        inside = found.get("env", found.get("venv"))
        if inside is None:
            break
    put_facts(environment={"count": instance.size, "processes": processes, "on_host": instance.on_host})


_watch = _Watch()


def watch_package(package: ModuleType, base: type, *others: type) -> None:
    """Report the steps and resets of all environment classes that a package has loaded.

    Args:
        package: an environment library.
        base: its base class of single environments, whose `reset` the program's own environments call.
        others: its further base classes, of vectorized environments.
    """
    prefix = f"{package.__name__}."
    acting.vector_packages.add(package.__name__.partition(".")[0])
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if isinstance(value, type) and issubclass(value, (base, *others)) and value.__module__ == name:
                    watch_steps(value)
                    wrap(value, "reset", _base_reset if value is base else _reset)
                    if value.__name__ in WRAPPERS:
                        wrap(value, "__init__", partial(_wrapper_init, f"{package.__name__}."))


def wrap_collection(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a framework's function that collects rollouts."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        rollouts = _watch.rollouts(_watch.threads.here)
        if not isinstance(rollouts, Rollouts):
            return original(*args, **kwargs)
        rollouts.collection_begins(host_clock())
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        if _watch.rollouts(_watch.threads.here) is rollouts:
            rollouts.collection_ends(host_clock())
        return result

    return wrapper


def watch_steps(owner: Any) -> None:
    """Report the steps of an environment class, where it has a `step` of its own."""
    wrap(owner, "step", _step)


def _step(original: Callable[..., Any]) -> Callable[..., Any]:
    # All in cells, nothing global: a class of the program's `__main__` may be saved by value and loaded without us.
    watch: Optional[_Watch] = _watch

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watch is None:
            return original(self, *args, **kwargs)
        here = watch.threads.here
        if here.depth:
            return original(self, *args, **kwargs)
        watch.begins(here, self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            watch.fails(here, error)
            raise
        watch.ends(here, self, result)
        return result

    return wrapper


def _reset(original: Callable[..., Any]) -> Callable[..., Any]:
    watch: Optional[_Watch] = _watch  # as above

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watch is None:
            return original(self, *args, **kwargs)
        here = watch.threads.here
        before = here.depth
        if not before:
            watch.resets(here, self, kwargs.get("options"))
        here.depth = before + 1
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            watch.fails(here, error)
            raise
        here.depth = before
        return result

    return wrapper


def _base_reset(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        here = _watch.threads.here
        if not here.depth:
            call_safely(_watch_own, type(self))
            _watch.resets(here, self, kwargs.get("options"))
        return original(self, *args, **kwargs)

    return wrapper


def _wrapper_init(prefix: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        original(self, *args, **kwargs)
        if not type(self).__module__.startswith(prefix):
            call_safely(_watch_own, type(self))

    return wrapper


def _watch_own(kind: type) -> None:
    """Report the steps and resets of a program's own environment class. Workers' are part of their vector's step."""
    if acting.is_vector_worker():
        return
    for owner in kind.__mro__:
        if hasattr(owner, "step"):
            for name, make in (("step", _step), ("reset", _reset)):
                wrap(owner, name, make)
