"""The parts and parameters of a model, without a call of its methods: a program may override them and see the calls."""

from __future__ import annotations

from typing import Any, Iterator, Set, Tuple

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
    seen: Set[int] = set()
    for part in modules_in(module):
        for parameter in (vars(part).get("_parameters") or {}).values():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


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
