"""Phases and spans as decorators, of every kind of function: what is timed is the body, whenever it runs."""

from __future__ import annotations

import functools
from typing import Any, AsyncIterator, Callable, ContextManager, Iterator

# Of a code object's flags; `inspect`, which names them too, takes milliseconds to import.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200

Timer = ContextManager[None]  # to be entered any number of times


def decorated(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with `timer` around its body.

    A coroutine is timed to its end, what it awaits included; a generator only while it works out its next item.
    """
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _COROUTINE:
        return functools.wraps(function)(_coroutine(timer, function))
    if flags & _GENERATOR:
        return functools.wraps(function)(_generator(timer, function))
    if flags & _ASYNC_GENERATOR:
        return functools.wraps(function)(_async_generator(timer, function))

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with timer:
            return function(*args, **kwargs)

    return timed


def _coroutine(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with timer:
            return await function(*args, **kwargs)

    return timed


def _generator(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        inner = function(*args, **kwargs)
        go_on, given = inner.send, None
        while True:
            try:
                with timer:
                    item = go_on(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                go_on, given = inner.send, (yield item)
            except BaseException as error:  # thrown in, or closed: that is the inner one's to answer
                go_on, given = inner.throw, error

    return timed


def _async_generator(timer: Timer, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        inner = function(*args, **kwargs)
        go_on, given = inner.asend, None
        while True:
            try:
                with timer:
                    item = await go_on(given)
            except StopAsyncIteration:
                return
            try:
                go_on, given = inner.asend, (yield item)
            except BaseException as error:  # as above
                go_on, given = inner.athrow, error

    return timed
