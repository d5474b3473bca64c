"""Ray: workers of a cluster that runs already join the run; plain actors are roles, by the calls of their methods.

Ray's own actors are none: those of Ray Train are ranks, those of Ray Tune trainings, as their processes say.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Set, Tuple

from trainhooks import session
from trainhooks.auto import unseen
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, wrap
from trainhooks.auto.rl.acting import learns_nothing
from trainhooks.lane_entries import END, SPAN, STEP, Loop, host_clock
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.rundir import BOOTSTRAP, RUN_VARIABLE, STATE_VARIABLE
from trainhooks.protocol.vocabulary import IDLE, method_phase

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # a submitted job's, which Ray refuses to merge with equal variables
ADDRESS = "RAY_ADDRESS"
# All that the hooks read, and no other variable of ours: Ray shows a runtime environment to whoever sees its cluster.
FOR_HOOKS = (
    RUN_VARIABLE, STATE_VARIABLE, "TRAINMON_GPU_CLOCK", "TRAINMON_TRACE", "TRAINMON_CONTROL", "TRAINMON_FRAMES",
    "TRAINMON_OPS", "TRAINMON_DEBUG",
)  # fmt: skip


@when_imported("ray")
def watch(module: ModuleType) -> None:
    wrap(module, "init", _init)
    manager = getattr(sys.modules.get("ray._private.function_manager"), "FunctionActorManager", None)
    if manager is not None:
        wrap(manager, "_make_actor_method_executor", _make_executor)
        wrap(manager, "get_execution_info", _execution_info)


# The workers of a cluster that runs already: they inherit nothing from the script


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        environment = call_safely(_for_workers, args, kwargs)
        if environment is not None:
            kwargs["runtime_env"] = environment
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


def _for_workers(args: Any, given: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the runtime environment with what the hooks need; None: it stays as it is."""
    address = args[0] if args else given.get("address")
    if RUN_VARIABLE not in os.environ or JOB_CONFIG in os.environ or given.get("job_config") is not None:
        return None
    if given.get("local_mode") or not _joins(address, given.get("_temp_dir")):
        return None
    runtime = dict(given.get("runtime_env") or {})
    variables = dict(runtime.get("env_vars") or {})
    ours = {name: os.environ[name] for name in FOR_HOOKS if name in os.environ}
    path = variables.get("PYTHONPATH", "${PYTHONPATH}")  # Ray puts the worker's own in its place
    runtime["env_vars"] = {**ours, **variables, "PYTHONPATH": f"{BOOTSTRAP}{os.pathsep}{path}"}
    return runtime


def _joins(address: Any, directory: Any) -> bool:
    """Return whether there is a cluster to join; else Ray starts one, whose workers inherit the environment."""
    if address not in (None, "auto"):
        return bool(address != "local")
    find = getattr(sys.modules.get("ray._private.services"), "get_ray_address_from_environment", None)
    found = os.environ.get(ADDRESS) if find is None else find(address, directory)
    return found not in (None, "", "local")


# Plain actors and tasks

MAX_BUSY = 1_000_000_000  # nanoseconds: an actor of coroutines that is never idle has a step of its own each second


class _Here(threading.local):
    """What one thread of a worker does."""

    side: Optional[session.Put] = None  # takes the calls of what does not train
    waiting: Optional[session.Put] = None  # took the begin of a wait for the next call
    open = 0  # calls: coroutines, and what they call in turn
    began = 0  # nanoseconds of the host clock: when the first of them did, or the last step ended


class _Calls:
    """The calls of an actor's methods, or of tasks, by others: what lies between them is waiting.

    Coroutines that run beside each other are one step, which ends with the last of them.
    """

    def __init__(self) -> None:
        self.here = _Here()
        self.loops: Dict[str, Loop] = {}  # by role: a process has one actor, or several tasks

    def begins(self, role: str) -> None:
        here = self.here
        here.open += 1
        if here.open > 1:
            return
        here.began = host_clock()
        if here.waiting is not None:
            here.waiting((None, here.began))
            here.waiting = None
        if role not in self.loops:
            session.set_role(role)
            self.loops[role] = Loop(role, None, None)

    def ends(self, role: str, name: str) -> None:
        now, here = host_clock(), self.here
        here.open -= 1
        if name == "__init__" or (here.open and now - here.began < MAX_BUSY):
            return
        if session.has_explicit_steps() or not learns_nothing():
            if not here.open:
                here.waiting = session.quiet_put()
                here.waiting((SPAN, now, IDLE))
            return
        if here.side is None:
            here.side = session.side_put()
        loop, began = self.loops[role], here.began
        for entry in (STEP, began, loop), (method_phase(name), began), (None, now), (END, now, loop):
            here.side(entry)
        here.began = now
        session.announce(acts=True)


_calls = _Calls()


def _make_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, method_name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        executor = original(self, method_name, method, *args, **kwargs)
        return call_safely(_timed_method, executor, method_name, method) or executor

    return wrapper


def _timed_method(executor: Any, name: str, method: Any) -> Any:
    if name.startswith("__ray"):
        return executor
    wrapper = _timed(executor, method, lambda actor: _role(type(actor), type(actor).__name__), name)
    wrapper.__dict__.update(vars(executor))  # by which Ray tells coroutines and its own methods
    return wrapper


def _execution_info(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, job: Any, descriptor: Any) -> Any:
        return call_safely(_timed_task, self, descriptor, info := original(self, job, descriptor)) or info

    return wrapper


def _timed_task(manager: Any, descriptor: Any, info: Any) -> Any:
    """Return what Ray keeps of a task, with a function that is timed."""
    key = descriptor.function_id
    if descriptor.is_actor_method() or key in _tasks:
        return info
    function, name = info.function, info.function_name.rpartition(".")[2]
    role = _role(function, name)
    _tasks.add(key)
    manager._function_execution_info[key] = info._replace(function=_timed(function, function, lambda *_: role, name))
    return manager._function_execution_info[key]


_tasks: Set[Any] = set()


def _role(what: Any, name: str) -> str:
    """Return the name of a role; empty for what is Ray's own."""
    return "" if what.__module__.partition(".")[0] == "ray" else clean(name, MAX_NAME)


def _timed(executor: Any, function: Any, role_of: Callable[..., str], name: str) -> Any:
    """Return a function of the same kind as `function` that calls `executor` and takes the time."""
    if inspect.isasyncgenfunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _Call(role_of, args, name):
                async for item in executor(*args, **kwargs):
                    yield item

    elif inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            with _Call(role_of, args, name):
                return await executor(*args, **kwargs)

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _Call(role_of, args, name):
                return (yield from executor(*args, **kwargs))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _Call(role_of, args, name):
                return executor(*args, **kwargs)

    wrapper.__code__ = unseen.hide_code(wrapper.__code__)
    return wrapper


class _Call:
    """One call, as a context."""

    __slots__ = ("_name", "_role")

    def __init__(self, role_of: Callable[..., str], args: Tuple[Any, ...], name: str) -> None:
        self._role: Optional[str] = call_safely(role_of, *args[:1])
        self._name = name

    def __enter__(self) -> None:
        if self._role:
            call_safely(_calls.begins, self._role)

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if error is not None:
            unseen.drop_own_frames(error)
        if self._role:
            call_safely(_calls.ends, self._role, self._name)
