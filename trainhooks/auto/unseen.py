"""Keep our wrappers out of what a program sees of its own stack: where warnings point to, and tracebacks.

`warnings.warn(..., stacklevel=3)` counts frames and names the file and line that it arrives at. With one of ours among
them that would be a line of torch, and filters would decide otherwise.
"""

from __future__ import annotations

import os
from types import CodeType, FunctionType, TracebackType
from typing import Any, Optional

PASSED_OVER = "importlib_bootstrap"  # a directory that does not exist, see `passed_over`

_AUTO = os.path.dirname(os.path.abspath(__file__)) + os.sep


def passed_over(code: CodeType) -> CodeType:
    """Return code, and that of the functions in it, under a file name that warnings pass over.

    `warnings.warn(..., stacklevel=2)` counts frames. It leaves out those of the import system, which it knows by
    "importlib" and "_bootstrap" in their file names.
    """
    directory, name = os.path.split(code.co_filename)
    if os.path.basename(directory) == PASSED_OVER or not code.co_filename.startswith(_AUTO):
        return code
    inner = tuple(passed_over(one) if type(one) is type(code) else one for one in code.co_consts)
    return code.replace(co_filename=os.path.join(directory, PASSED_OVER, name), co_consts=inner)


def by_warnings(module: Any) -> None:
    """Have warnings pass over all functions of a module, and those that they make from now on."""
    for owner in (module, *(value for value in vars(module).values() if isinstance(value, type))):
        if getattr(owner, "__module__", module.__name__) != module.__name__:
            continue
        for function in list(vars(owner).values()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = passed_over(function.__code__)


def in_traceback(error: BaseException) -> None:
    """Take our outermost frames off an exception's traceback, before a bare `raise`.

    Up to Python 3.10 a bare `raise` restores what was there.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_AUTO):
        trace = trace.tb_next
    error.__traceback__ = trace


def trimmed(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Return a traceback without our frames, wherever they are."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_AUTO):
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        while entry.tb_next is not None and entry.tb_next.tb_frame.f_code.co_filename.startswith(_AUTO):
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    return trace
