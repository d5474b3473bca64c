"""Ray: workers of a cluster that runs already join the run; plain actors are roles, by the calls of their methods.

Ray's own actors are none: those of Ray Train are ranks, those of Ray Tune trainings, as their processes say.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Dict, Optional

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


# Plain actors


class _Here(threading.local):
    """What one thread of an actor does."""

    side: Optional[session.Put] = None  # takes the calls of what does not train
    waiting: Optional[session.Put] = None  # took the begin of a wait for the next call


class _Calls:
    """The calls of an actor's methods by others: what lies between them is waiting."""

    def __init__(self) -> None:
        self.here = _Here()
        self.loop: Optional[Loop] = None  # a process has one actor

    def begins(self, actor: Any) -> int:
        """Take the begin of a call. Return its time."""
        here = self.here
        now = host_clock()
        if here.waiting is not None:
            here.waiting((None, now))
            here.waiting = None
        if self.loop is None:
            role = clean(type(actor).__name__, MAX_NAME)
            session.set_role(role)
            self.loop = Loop(role, None, None)
        return now

    def ends(self, method: str, began: int) -> None:
        now, here = host_clock(), self.here
        if method == "__init__":
            return
        if session.has_explicit_steps() or not learns_nothing():
            here.waiting = session.quiet_put()
            here.waiting((SPAN, now, IDLE))
            return
        if here.side is None:
            here.side = session.side_put()
        for entry in (STEP, began, self.loop), (method_phase(method), began), (None, now), (END, now, self.loop):
            here.side(entry)
        session.announce(acts=True)


_calls = _Calls()


def _make_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, method_name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        executor = original(self, method_name, method, *args, **kwargs)
        return call_safely(_timed, executor, method_name, method) or executor

    return wrapper


def _timed(executor: Any, name: str, method: Any) -> Any:
    """Return a function that calls `executor` and takes the time. One that only begins something stays as it is."""
    is_whole = not (inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method))
    if name.startswith("__ray") or inspect.isasyncgenfunction(method) or not is_whole:
        return executor

    def wrapper(actor: Any, *args: Any, **kwargs: Any) -> Any:
        if type(actor).__module__.partition(".")[0] == "ray":
            return executor(actor, *args, **kwargs)
        began = call_safely(_calls.begins, actor)
        try:
            result = executor(actor, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        if began is not None:
            call_safely(_calls.ends, name, began)
        return result

    wrapper.__code__ = unseen.hide_code(wrapper.__code__)
    wrapper.__dict__.update(vars(executor))  # by which Ray tells coroutines and its own methods
    return wrapper
