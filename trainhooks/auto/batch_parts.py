"""What is in a batch, without a call of methods of the program, which would see it: only base classes are read."""

from __future__ import annotations

from collections import UserDict
from typing import Any, Dict, List, Optional

# Mappings of these packages that are no dict are read by their methods.
LIBRARIES = frozenset(("tensordict", "torch_geometric", "transformers", "datasets"))
# A class of tensors that has one of these of its own is not read.
MEMBERS = frozenset((
    "__torch_function__", "__torch_dispatch__", "__getattribute__", "__getattr__", "shape", "dim", "dtype", "device",
    "is_cpu", "is_cuda", "is_floating_point", "is_pinned", "numel", "element_size", "count_nonzero",
    "tolist", "any", "__getitem__", "__ne__", "__gt__",
))  # fmt: skip

_readable: Dict[type, bool] = {}


def is_readable(kind: type, tensor: type) -> bool:
    """Return whether tensors of a class can be read without the program's noticing; `tensor` is torch.Tensor."""
    if kind is tensor:
        return True
    found = _readable.get(kind)
    if found is None:
        found = issubclass(kind, tensor) and not any(
            MEMBERS.intersection(vars(base)) for base in kind.__mro__ if base is not tensor and issubclass(base, tensor)
        )
        _readable[kind] = found
    return found


def first_items(batch: Any, limit: int) -> Optional[List[Any]]:
    """Return the first items of a list or tuple; None of anything else."""
    kind = type(batch)
    if issubclass(kind, list):
        return list.__getitem__(batch, slice(limit))
    if issubclass(kind, tuple):
        return list(tuple.__getitem__(batch, slice(limit)))
    return None


def as_mapping(batch: Any) -> Optional[Any]:
    """Return a mapping with the contents of one; None of anything else, and of one that would notice."""
    kind = type(batch)
    if kind is dict:
        return batch
    if issubclass(kind, dict):
        return _Contents(batch)
    if issubclass(kind, UserDict):
        inner = vars(batch).get("data")
        return inner if type(inner) is dict else None
    if kind.__module__.partition(".")[0] in LIBRARIES and hasattr(batch, "keys") and hasattr(batch, "get"):
        return batch
    return None


class _Contents:
    """The contents of an instance of a class that is made of dict."""

    def __init__(self, batch: Dict[Any, Any]) -> None:
        self._batch = batch

    def get(self, name: Any) -> Any:
        return dict.get(self._batch, name)

    def keys(self) -> List[Any]:
        return list(dict.keys(self._batch))

    def __getitem__(self, name: Any) -> Any:
        return dict.__getitem__(self._batch, name)


def known_length(dataset: Any) -> Optional[int]:
    """Return the length of a data set where a library tells it; None where a method of the program would be asked."""
    measure = getattr(type(dataset), "__len__", None)
    owner: Any = getattr(measure, "__module__", None) or "builtins"  # functions in C have none
    if measure is None or str(owner).partition(".")[0] not in ("torch", "datasets", "builtins"):
        return None
    return len(dataset)
