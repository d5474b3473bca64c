"""Keep our wrappers out of what a program sees of its own stack: where warnings point to, and tracebacks.

`warnings.warn(..., stacklevel=3)` counts frames and names the file and line that it arrives at. With one of ours among
them that would be a line of torch, and filters would decide otherwise.
"""

from __future__ import annotations

import os
from types import CodeType, FunctionType, TracebackType
from typing import Any, Optional

HIDDEN_DIRECTORY = "importlib_bootstrap"  # a directory that does not exist, see `hide_code`

_AUTO = os.path.dirname(os.path.abspath(__file__)) + os.sep


def hide_code(code: CodeType) -> CodeType:
    """Return code, and that of the functions in it, under a file name that warnings pass over.

    `warnings.warn(..., stacklevel=2)` counts frames. It leaves out those of the import system, which it knows by
    "importlib" and "_bootstrap" in their file names.
    """
    directory, name = os.path.split(code.co_filename)
    if os.path.basename(directory) == HIDDEN_DIRECTORY or not code.co_filename.startswith(_AUTO):
        return code
    inner = tuple(hide_code(one) if type(one) is type(code) else one for one in code.co_consts)
    return code.replace(co_filename=os.path.join(directory, HIDDEN_DIRECTORY, name), co_consts=inner)


def hide_from_warnings(module: Any) -> None:
    """Have warnings pass over all functions of a module, and those that they make from now on."""
    for owner in (module, *(value for value in vars(module).values() if isinstance(value, type))):
        if getattr(owner, "__module__", module.__name__) != module.__name__:
            continue
        for function in list(vars(owner).values()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = hide_code(function.__code__)


def drop_own_frames(error: BaseException) -> None:
    """Take our outermost frames off an exception's traceback, before a bare `raise`.

    Up to Python 3.10 a bare `raise` restores what was there.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_AUTO):
        trace = trace.tb_next
    error.__traceback__ = trace


def without_own_frames(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Return a traceback without our frames, wherever they are."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_AUTO):
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        while entry.tb_next is not None and entry.tb_next.tb_frame.f_code.co_filename.startswith(_AUTO):
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    return trace
