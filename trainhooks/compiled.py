"""What `torch.compile` traces in place of the public calls: nothing, so that a graph stays as it is without them.

Dynamo inlines every function that compiled code calls, and the clock, threads and deques of ours are nothing that it
can put into a graph: with `fullgraph=True` a call would be an error. Where a function has the attribute below, dynamo
traces what stands there instead. Torch sets it on functions that it has compiled or scripted itself (torch 2.0), so
neither torch nor a check at every call is needed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Iterator, TypeVar

INLINE = "_torchdynamo_inline"

F = TypeVar("F", bound=Callable[..., Any])


def traced_as(stand_in: Callable[..., Any]) -> Callable[[F], F]:
    """Have dynamo trace `stand_in` where compiled code calls the decorated function.

    Not for wrappers of the program's functions: `functools.wraps` copies attributes, so a wrapper of the program's
    around such a wrapper would not be traced either.
    """

    def mark(function: F) -> F:
        setattr(function, INLINE, stand_in)
        return function

    return mark


def record_nothing(*args: Any, **kwargs: Any) -> None:
    """Stand in for a call that only records."""


def no_timer(*args: Any, **kwargs: Any) -> ContextManager[None]:
    """Stand in for a phase, a span or a step: a context manager that may hold graph breaks."""
    return nullcontext()


def plain_items(iterable: Any, **kwargs: Any) -> Iterator[Any]:
    """Stand in for `steps`."""
    return iter(iterable)
