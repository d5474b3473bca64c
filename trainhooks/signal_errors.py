"""Tell an error of the program's own signal handlers from one of ours: handlers run between any two lines of Python."""

from __future__ import annotations

from types import CodeType
from typing import Any, Optional


def pass_on(error: Optional[BaseException]) -> None:
    """Raise `error` again if a signal handler of the program raised it: a time limit must not get lost in our code."""
    trace = error.__traceback__ if error is not None else None
    if trace is None:
        return
    import signal  # rarely needed, and not by everybody loaded

    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    while trace is not None and handlers:
        if trace.tb_frame.f_code in handlers:
            raise error  # type: ignore[misc]
        trace = trace.tb_next


def _code(handler: Any) -> Optional[CodeType]:
    """Return the code of a handler; None for one that is not written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    code = getattr(handler, "__code__", None) or getattr(getattr(type(handler), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None
