"""The steps of environments, reported to the tracker's rollouts: what the adapters of environment libraries use.

Classes of a library are wrapped; the program's own only where they call their base's `reset` and no wrapper holds them.
"""

from __future__ import annotations

import sys
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Optional, Sequence, Tuple

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import MARK, call_safely, framework, put_facts, wrap
from trainhooks.auto.rl.rollouts import Rollouts
from trainhooks.lane_entries import host_clock

MAX_ENV_WRAPPERS = 20  # around an environment; a program has a handful


class _Watch:
    """The calls of environments on the tracker's thread. It is not saved with the functions that hold it."""

    def __init__(self) -> None:
        self.depth = 0  # wrappers step what they wrap
        self.resets = 0  # of wrappers, under way
        self.is_counted = False
        self.since = 0  # when the step under way began
        self.described: Optional[Tuple[type, int]] = None  # the environment that the facts tell of
        self.returns: Any = 0.0  # since each environment's last episode
        self.lengths: Any = 0
        self.resetting: Any = None  # which of a vector's environments are reset by their next step

    def __reduce__(self) -> Any:
        return type(None), ()

    def rollouts(self) -> Optional[Rollouts]:
        """Return the rollouts of the tracker, off its fast path, if it follows the calling thread."""
        tracker = framework.tracker
        if tracker is None or tracker.silent or tracker.thread != get_ident():
            return None
        tracker.fast_path.leave()
        found: Rollouts = tracker.rollouts
        return found

    def begins(self) -> Optional[Rollouts]:
        """Record the begin of a step of the outermost environment. Return the rollouts that it is recorded in."""
        rollouts = self.rollouts()
        if rollouts is not None:
            self.depth = 1
            self.since = host_clock()
            self.is_counted = rollouts.env_step_begins(self.since)
        return rollouts

    def fails(self, error: BaseException) -> None:
        self.depth = 0
        unseen.drop_own_frames(error)

    def ends(self, rollouts: Rollouts, environment: Any, result: Any) -> None:
        t = host_clock()
        self.depth = 0
        if self.is_counted:
            call_safely(self._read, rollouts, environment, result, t)
        elif framework.tracker is not None and framework.tracker.evaluating:
            framework.tracker.eval_last = t

    def _read(self, rollouts: Rollouts, environment: Any, result: Any, t: int) -> None:
        """Read an environment's step: observations, rewards, ends of episodes (one column, or two), and information."""
        items: Sequence[Any] = list(result) if isinstance(result, (tuple, list)) else []
        if len(items) not in (4, 5):
            rollouts.env_step_ends(t, 1, self.since)
            return
        rewards, information = items[1], items[-1]
        shape: Any = getattr(rewards, "shape", ())
        is_vector = len(shape) == 1
        count = int(shape[0]) if is_vector else 1
        rollouts.env_step_ends(t, count, self.since)
        on_host = type(rewards).__module__ in ("builtins", "numpy")
        self._describe(environment, count, on_host)
        if not on_host:
            return  # tensors of a GPU: reading them would wait for it
        done = items[2] if len(items) == 4 else items[2] | items[3]
        if is_vector:
            mode = (getattr(environment, "metadata", None) or {}).get("autoreset_mode")
            self._vector(rollouts, rewards, done, information, getattr(mode, "name", "") == "NEXT_STEP")
        else:
            self._single(rollouts, float(rewards), bool(done), information)

    def _describe(self, environment: Any, count: int, on_host: bool) -> None:
        """Record what is stepped, once: how many environments, in how many processes beside this one."""
        if self.described == (type(environment), count):
            return
        self.described = type(environment), count
        inside, processes = environment, 0
        for _ in range(MAX_ENV_WRAPPERS):
            found = getattr(inside, "__dict__", {})
            workers = found.get("processes")
            if isinstance(workers, (list, tuple)):
                processes = len(workers)
            inside = found.get("env", found.get("venv"))
            if inside is None:
                break
        put_facts(environment={"count": count, "processes": processes, "on_host": on_host})

    def _single(self, rollouts: Rollouts, reward: float, done: bool, information: Any) -> None:
        if type(self.returns) is not float:
            self.returns, self.lengths = 0.0, 0
        self.returns += reward
        self.lengths += 1
        if done:
            total, length = _statistics(information) or (self.returns, self.lengths)
            rollouts.episode_ends(float(total), float(length))
            self.returns, self.lengths = 0.0, 0

    def _vector(self, rollouts: Rollouts, rewards: Any, done: Any, information: Any, resets_next: bool) -> None:
        if getattr(self.returns, "shape", None) != rewards.shape:
            self.returns, self.lengths, self.resetting = rewards * 0.0, rewards * 0.0, None
        self.returns = self.returns + rewards
        self.lengths = self.lengths + 1
        if self.resetting is not None:
            self.returns[self.resetting] = self.lengths[self.resetting] = 0
        self.resetting = done.copy() if resets_next else None
        if not done.any():
            return
        for index in done.nonzero()[0].tolist():
            known = _statistics(information[index]) if isinstance(information, (list, tuple)) else None
            if known is None and isinstance(information, dict):
                known = _statistics(information, index)
            total, length = known or (self.returns[index], self.lengths[index])
            rollouts.episode_ends(float(total), float(length))
            self.returns[index] = self.lengths[index] = 0


def _statistics(information: Any, index: Optional[int] = None) -> Any:
    """Return an episode's return and length, as wrappers that record them leave them; None: unknown."""
    known = information.get("episode") if isinstance(information, dict) else None
    if not isinstance(known, dict) or "r" not in known or "l" not in known:
        return None
    return (known["r"], known["l"]) if index is None else (known["r"][index], known["l"][index])


_watch = _Watch()


def watch_package(package: ModuleType, base: type, *others: type) -> None:
    """Report the steps of all environment classes that a package has loaded.

    Args:
        package: an environment library.
        base: its base class of single environments, whose `reset` the program's own environments call.
        others: its further base classes, of vectorized environments.
    """
    prefix = f"{package.__name__}."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if isinstance(value, type) and issubclass(value, (base, *others)) and value.__module__ == name:
                    watch_steps(value)
                    wrap(value, "reset", _base_reset if value is base else _wrapper_reset)


def wrap_collection(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a framework's function that collects rollouts."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        rollouts = _watch.rollouts()
        if rollouts is None:
            return original(*args, **kwargs)
        rollouts.collection_begins(host_clock())
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        if _watch.rollouts() is rollouts:
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
        if watch is None or watch.depth:
            return original(self, *args, **kwargs)
        rollouts = watch.begins()
        if rollouts is None:
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            watch.fails(error)
            raise
        watch.ends(rollouts, self, result)
        return result

    return wrapper


def _wrapper_reset(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        _watch.resets += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _watch.resets -= 1

    return wrapper


def _base_reset(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        rollouts = _watch.rollouts()
        if rollouts is not None:
            rollouts.has_environment = True
            if not (_watch.resets or _watch.depth):
                call_safely(_watch_own, type(self))
        return original(self, *args, **kwargs)

    return wrapper


def _watch_own(kind: type) -> None:
    """Report the steps of a program's own environment class. Workers' are part of their vector's step."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return
    for owner in kind.__mro__:
        step = vars(owner).get("step")
        if step is not None and not hasattr(step, MARK):
            watch_steps(owner)
