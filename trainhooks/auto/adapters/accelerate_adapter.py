"""Accelerate: its settings of distribution and precision, and spans of its slow calls.

Steps come from the optimizer that it wraps, which it calls only once the gradients have been accumulated.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable, Dict

from trainhooks.auto import unseen
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, framework, put_facts, time_functions, wrap

ACCUMULATION = "gradient_accumulation_steps"
SETTINGS = ("mixed_precision", "num_processes", ACCUMULATION, "distributed_type")
SPANS = {"prepare": "accelerate prepare", "save_state": "checkpoint", "load_state": "load checkpoint"}


@when_imported("accelerate.accelerator")
def wrap_accelerator(module: ModuleType) -> None:
    wrap(module.Accelerator, "__init__", _init)
    wrap(module.Accelerator, "prepare_data_loader", _prepare_data_loader)
    time_functions(module.Accelerator, SPANS)


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        found = call_safely(settings, self)
        if found:
            put_facts(accelerate=found)

    return wrapper


def _prepare_data_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # Its loaders fetch one batch ahead to detect the last one.
        framework.prefetched_batches = max(framework.prefetched_batches, 1)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


def settings(accelerator: Any) -> Dict[str, Any]:
    """Return the settings of an Accelerator, as far as this version has them."""
    found = {}
    for name in SETTINGS:
        value = getattr(accelerator, name, None)
        if value is not None:
            found[name] = getattr(value, "value", value)
    if found.get(ACCUMULATION) == 1:
        found.pop(ACCUMULATION)  # the default; a Trainer that accumulates itself keeps it
    return found
