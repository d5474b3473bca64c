"""Find a large embedding whose dense gradient is zero in almost all rows, by a sample of its rows."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from trainhooks.auto.models.module_parts import modules_in, parameters_in
from trainhooks.device import cuda, deferred

MIN_ELEMENTS = 4_000_000  # of a table; below that, updating all of it takes a millisecond at most
SAMPLED_ROWS = 1024  # evenly spaced


def dense_embedding(model: Any, read: Callable[[float], None]) -> Optional[Dict[str, Any]]:
    """Return facts of a model's largest embedding with a dense gradient; None if there is none, or it is small.

    Args:
        read: called with the share of its rows that have a gradient, if that is on its way from a device.
    """
    owners: Dict[int, int] = {}  # a table that is also the weight of another module has a gradient in all rows
    found: List[Any] = []
    for part in modules_in(model):
        weights = (vars(part).get("_parameters") or {}).values()
        for weight in weights:
            if weight is not None:
                owners[id(weight)] = owners.get(id(weight), 0) + 1
        if {"Embedding", "EmbeddingBag"} & {kind.__name__ for kind in type(part).__mro__}:
            found.append(part)
    tables = [vars(part)["_parameters"].get("weight") for part in found if not vars(part).get("sparse")]
    own = [table for table in tables if table is not None and owners.get(id(table)) == 1 and table.dim() == 2]
    largest = max(own, key=lambda table: table.numel(), default=None)
    if largest is None or largest.numel() < MIN_ELEMENTS:
        return None
    gradient = largest.grad
    if gradient is None or gradient.is_sparse or type(gradient).__name__ != "Tensor":
        return None
    facts = {
        "rows": int(largest.shape[0]),
        "width": int(largest.shape[1]),
        "elements": int(largest.numel()),
        "trained": sum(parameter.numel() for parameter in parameters_in(model) if parameter.requires_grad),
    }
    touched = _touched(gradient, read)
    return facts if touched is None else {**facts, "touched": round(touched, 6)}


def _touched(gradient: Any, read: Callable[[float], None]) -> Optional[float]:
    """Return the share of sampled rows that are not zero; None if it is unknown, or follows by `read`."""
    if not (gradient.is_cpu or (gradient.is_cuda and cuda.is_quiet())):
        return None
    rows = gradient.detach()[:: max(1, gradient.shape[0] // SAMPLED_ROWS)]
    share = (rows != 0).any(1).float().mean()
    if gradient.is_cpu:
        return float(share.item())
    arriving = deferred.start_copy("embedding", share)
    if arriving is not None:
        arriving.wanted = False
        arriving.reader = read
    return None
