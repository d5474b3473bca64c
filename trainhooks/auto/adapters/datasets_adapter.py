"""datasets: the time of `Dataset.map`, as a span `tokenize` or `dataset map`."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import span, wrap


@when_imported("datasets.arrow_dataset")
def wrap_map(module: ModuleType) -> None:
    wrap(module.Dataset, "map", _map)


def _map(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = f"{kwargs.get('desc')} {getattr(function, '__name__', '')}".lower()
        with span("tokenize" if "token" in name else "dataset map"):
            return original(self, function, *args, **kwargs)

    return wrapper
