"""argparse: the parsed epochs and steps of a program, from which the length of a plain loop is known."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, wrap
from trainhooks.auto.steps.plan import remember_arguments


@when_imported("argparse")
def wrap_parser(module: ModuleType) -> None:
    wrap(module.ArgumentParser, "parse_known_args", _parse)


def _parse(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        call_safely(_remember, result)
        return result

    return wrapper


def _remember(result: Any) -> None:
    remember_arguments(vars(result[0]))
