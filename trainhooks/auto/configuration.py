"""How a training is set up, told once, at the first optimizer step: optimizer, model, mixed precision. No values."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Optional

from trainhooks import session
from trainhooks.auto import models, precision, sections
from trainhooks.entries import FACTS

_model: Optional["weakref.ReferenceType[Any]"] = None
_largest = -1  # parameters of the optimizer that was told: of several the largest is the training's


def trains(module: Any) -> None:
    """This is the model that the first optimizer trains; it may still be wrapped, moved and set until it steps."""
    global _model
    _model = weakref.ref(module)


def optimizer_steps(optimizer: Any) -> None:
    """An optimizer makes its first step: by now everything is in place."""
    found = sections.harmless(_facts, optimizer)
    if found:
        session.quiet_put()((FACTS, {"facts": found}))


def _facts(optimizer: Any) -> Dict[str, Any]:
    global _largest
    told = optimizer_facts(optimizer)
    if told["parameters"] <= _largest:
        return {}
    _largest = told["parameters"]
    facts: Dict[str, Any] = {"optimizer": told, "autocast": precision.watched.dtype}
    module = _model() if _model is not None else None
    if module is not None and not models.told:  # else a framework has said it already
        facts["model"] = models.model_facts(module)
    return facts


def optimizer_facts(optimizer: Any) -> Dict[str, Any]:
    """Class, size and place of what it updates, and how it does so; None stands for torch's own choice."""
    dtypes: Dict[str, int] = {}
    tensors = 0
    device = None
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            dtype = str(parameter.dtype).rpartition(".")[2]
            dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
            tensors += 1
            device = device or parameter.device.type
    facts: Dict[str, Any] = {
        "class": type(optimizer).__name__,
        "parameters": sum(dtypes.values()),
        "tensors": tensors,
        "dtypes": dtypes,
        "device": device,
    }
    first = optimizer.param_groups[0] if optimizer.param_groups else {}
    for name in ("fused", "foreach"):
        if name in first:
            facts[name] = first[name]
    return facts
