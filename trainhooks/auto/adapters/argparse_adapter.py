"""argparse: the parsed epochs and steps of a program, from which the length of a plain loop is known."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import harmless, replace
from trainhooks.auto.steps.plan import remember


@when_imported("argparse")
def wrap_parser(module: ModuleType) -> None:
    replace(module.ArgumentParser, "parse_known_args", _parse)


def _parse(original: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        harmless(_remember, result)
        return result

    return ours


def _remember(result: Any) -> None:
    remember(vars(result[0]))
