"""The parts and parameters of a model, without a call of its methods: a program may override them and see the calls."""

from __future__ import annotations

import weakref
from typing import Any, Iterator, Optional, Set, Tuple

MAX_WRAPPERS = 8  # around a model
PLACES = (1 / 3, 2 / 3)  # of each size of a parameter, whose numbers are compared


def modules_in(module: Any) -> Iterator[Any]:
    """Yield a module and all modules in it, each once, as `module.modules()` does."""
    seen: Set[int] = set()
    waiting = [module]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        inner = (vars(part).get("_modules") or {}).values()
        waiting += reversed([one for one in inner if one is not None])


def parameters_in(module: Any) -> Iterator[Any]:
    """Yield the parameters of a module and of its parts, each once, as `module.parameters()` does."""
    return (parameter for parameter, _, _ in stored_parameters(module))


def stored_parameters(module: Any) -> Iterator[Tuple[Any, Any, str]]:
    """Yield them likewise, each with the module that it is a part of and its name there."""
    seen: Set[int] = set()
    for part in modules_in(module):
        for name, parameter in (vars(part).get("_parameters") or {}).items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter, part, name


class ParameterPlace:
    """Finds a parameter by where it is kept: torch swaps no tensor that has a weak reference.

    Args:
        parameter: what is there now.
        keeper: refers weakly to the module or optimizer that keeps it.
        keys: lead to it from the keeper's attributes.
    """

    __slots__ = ("_id", "_keeper", "_keys")

    def __init__(self, parameter: Any, keeper: "weakref.ReferenceType[Any]", *keys: Any) -> None:
        self._id, self._keeper, self._keys = id(parameter), keeper, keys

    def __call__(self) -> Optional[Any]:
        """Return the parameter; None if it is there no longer."""
        keeper = self._keeper()
        found = None if keeper is None else vars(keeper)
        try:
            for key in self._keys:
                found = found[key]  # type: ignore[index]  # that of None is a TypeError
        except (LookupError, TypeError):
            return None
        return found if id(found) == self._id else None


def place_in_module(parameter: Any, part: Any, name: str) -> ParameterPlace:
    """Return the place of what `stored_parameters` yields."""
    return ParameterPlace(parameter, weakref.ref(part), "_parameters", name)


def optimized_parameters(optimizer: Any) -> Iterator[Tuple[Any, Tuple[Any, ...]]]:
    """Yield the parameters of an optimizer, each with the keys that lead to it from the optimizer's attributes."""
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield parameter, ("param_groups", number, "params", index)


def stored_attribute(module: Any, name: str) -> Any:
    """Return an attribute of a module or of its class; None if there is none, or if reading it would run a program."""
    if name in vars(module):
        return vars(module)[name]
    found = next((vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)), None)
    return None if hasattr(type(found), "__get__") else found


def is_readable(parameter: Any) -> bool:
    """Return whether the numbers of a parameter can be read without waiting for a GPU."""
    return type(parameter).__name__ == "Parameter" and parameter.is_cpu and parameter.numel() > 0


def some_numbers(parameter: Any) -> Tuple[float, ...]:
    """Return two of a parameter's numbers: they differ where it was changed, also where that left no other trace."""
    held = parameter.detach()
    return tuple([float(held[tuple([int(size * place) for size in held.shape])]) for place in PLACES])
