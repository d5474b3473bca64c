"""TRL: profiled sections of its trainers as phases, the time of each reward function, and calls of a vLLM server.

Totals, settings and logged metrics come through the Trainer's callback, as for any Trainer.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Iterator, Optional

from trainhooks import session
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import FORWARD, framework, is_open, phase, step_begins, time_functions, wrap
from trainhooks.lane_entries import AGGREGATE, NANOSECOND, host_clock
from trainhooks.protocol.limits import clean
from trainhooks.protocol.vocabulary import REWARD, REWARD_SECONDS, phase_name

LOG_PROBS = "log_probs"
SECTION_ATTRIBUTE = "_trainmon_section"  # the attribute of TRL's context with our section
# What its client of a vLLM server does, by method, where no profiled section holds it.
CLIENT_PHASES = {
    "generate": "generation",
    "chat": "generation",
    "get_sequence_logprobs": LOG_PROBS,
    "update_named_param": "weight_sync",
    "update_named_params": "weight_sync",
    "update_model_params": "weight_sync",
    "_start_weight_update": "weight_sync",
    "_finish_weight_update": "weight_sync",
}

# Trainers that profile only their calls of generate(): their methods, by the phase that each is.
PROFILES_LITTLE = ("online_dpo", "nash_md", "xpo")
REWARD_METHODS = ("_calculate_rewards_from_functions", "_compute_rewards", "_compute_judge")


def _wrap_methods(module: ModuleType) -> None:
    for owner in [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]:
        time_functions(owner, dict.fromkeys(REWARD_METHODS, REWARD), is_span=False)
        wrap(owner, "_forward", _forward)


for _name in PROFILES_LITTLE:
    when_imported(f"trl.trainer.{_name}_trainer")(_wrap_methods)  # until TRL 0.26
    when_imported(f"trl.experimental.{_name}.{_name}_trainer")(_wrap_methods)


def _forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time the log-probabilities of a reference; those of the policy, with gradients, are its forward pass."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tracker = framework.tracker
        with contextlib.nullcontext() if tracker is None or tracker.grads_wanted() else phase(LOG_PROBS):
            return original(*args, **kwargs)

    return wrapper


@when_imported("trl.extras.profiling")
def wrap_profiling(module: ModuleType) -> None:
    context = getattr(module, "ProfilingContext", None)
    if context is not None:
        wrap(context, "__enter__", _enter)
        wrap(context, "__exit__", _exit)
    else:  # until TRL 0.26 a generator makes the context
        wrap(module, "profiling_context", _profiling_context)


@when_imported("trl.generation.vllm_client")
@when_imported("trl.extras.vllm_client")  # until TRL 0.26
def wrap_vllm_client(module: ModuleType) -> None:
    client = getattr(module, "VLLMClient", None)
    if client is not None:
        time_functions(client, CLIENT_PHASES, is_span=False)


class _ProfiledSection:
    """One profiled section while it is open."""

    def __init__(self, name: str) -> None:
        alias = name.partition(".")[2] or name
        label = phase_name(alias)
        self.reward_function: Optional[str] = None
        is_concurrent = _is_concurrent()
        if label is None and (is_concurrent or is_open(REWARD)):
            self.reward_function = alias
        elif is_concurrent:
            label = None
        if label == LOG_PROBS and is_open(FORWARD):
            label = FORWARD  # those of the trained policy are its forward pass
        self.section = None if label is None else phase(label)
        self.began = host_clock()

    def enter(self) -> None:
        if self.section is not None:
            step_begins()
            self.section.__enter__()

    def leave(self) -> None:
        if self.section is not None:
            self.section.__exit__(None, None, None)
        elif self.reward_function is not None:
            seconds = (host_clock() - self.began) / NANOSECOND
            session.quiet_put()((AGGREGATE, {f"{REWARD_SECONDS}{clean(self.reward_function, 64)}": seconds}, {}))


def _is_concurrent() -> bool:
    """Return whether this runs in an asyncio task of another thread, where sections do not nest."""
    if threading.current_thread() is threading.main_thread():  # in a notebook it has a loop as well
        return False
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _enter(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any) -> Any:
        profiled = _ProfiledSection(str(getattr(self, "name", "")))
        profiled.enter()
        setattr(self, SECTION_ATTRIBUTE, profiled)
        return original(self)

    return wrapper


def _exit(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *error: Any) -> Any:
        try:
            return original(self, *error)
        finally:
            profiled = self.__dict__.pop(SECTION_ATTRIBUTE, None)
            if profiled is not None:
                profiled.leave()

    return wrapper


def _profiling_context(original: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def wrapper(trainer: Any, name: str) -> Iterator[None]:
        profiled = _ProfiledSection(f"{type(trainer).__name__}.{name}")
        with original(trainer, name):
            profiled.enter()
            try:
                yield
            finally:
                profiled.leave()

    return wrapper
