"""Accelerate: how it distributes and what it casts to.

Steps come from the optimizer inside its own, which it calls only where the gradients have been accumulated.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable, Dict

from trainhooks import session
from trainhooks.auto import claims, sections
from trainhooks.entries import FACTS

ACCUMULATION = "gradient_accumulation_steps"
SETTINGS = ("mixed_precision", "num_processes", ACCUMULATION, "distributed_type")
SPANS = {"prepare": "accelerate prepare", "save_state": "checkpoint", "load_state": "load checkpoint"}


def install(module: ModuleType) -> None:
    """Called after `accelerate.accelerator` has been imported."""
    accelerator = module.Accelerator
    sections.replace(accelerator, "__init__", _telling)
    sections.replace(accelerator, "prepare_data_loader", _preparing)
    for method, label in SPANS.items():
        sections.timed(accelerator, method, label)


def _telling(init: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        found = sections.harmless(settings, self)
        if found:
            session.quiet_put()((FACTS, {"facts": {"accelerate": found}}))

    return ours


def _preparing(prepare_data_loader: Callable[..., Any]) -> Callable[..., Any]:
    def ours(*args: Any, **kwargs: Any) -> Any:
        claims.ahead = max(claims.ahead, 1)  # its loaders look for the end before they hand a batch on
        return prepare_data_loader(*args, **kwargs)

    return ours


def settings(accelerator: Any) -> Dict[str, Any]:
    """What an Accelerator was told or found out, as far as this version has it."""
    found = {}
    for name in SETTINGS:
        value = getattr(accelerator, name, None)
        if value is not None:
            found[name] = getattr(value, "value", value)
    if found.get(ACCUMULATION) == 1:
        found.pop(ACCUMULATION)  # the default; a Trainer that accumulates by itself leaves it so
    return found
