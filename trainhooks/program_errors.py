"""Tell exceptions of the program from errors of ours: signal handlers and other threads raise between any two lines.

A time limit must not get lost in our code. An error of ours comes from what our code did: from a `raise`, or from a
call that failed, which says why.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from types import FrameType, TracebackType
from typing import Any, Dict, Optional

DEBUG_VARIABLE = "TRAINMON_DEBUG"  # set, it shows errors of ours
FAILED = "hooks-failed"  # the note's code

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Calls end with these without a text, so they tell nothing of who raised them.
_WITHOUT_TEXT = (StopIteration, StopAsyncIteration, MemoryError, AssertionError, EOFError)
# Calls into these raise exceptions of their own classes.
_LIBRARIES = frozenset(("builtins", "torch", "numpy", *getattr(sys, "stdlib_module_names", ())))


def pass_on(error: Optional[BaseException]) -> None:
    """Raise `error` again if it is the program's."""
    if error is not None and is_programs(error):
        raise error


def until_gone(thing: Any, known: Dict[Any, Any], key: Any) -> "weakref.ReferenceType[Any]":
    """Return a weak reference. While it is held, `known` loses a key as soon as `thing` is gone.

    No Python runs for that: what is raised in a callback of a weak reference is printed and lost, the program's too.
    """
    return weakref.ref(thing, functools.partial(known.pop, key))  # the reference is what `pop` returns for want of it


def show(error: BaseException) -> None:
    """Print an error of ours, where mistakes are looked for."""
    if os.environ.get(DEBUG_VARIABLE):
        sys.excepthook(type(error), error, error.__traceback__)


def failure(part: str, error: BaseException) -> str:
    """Return what a note says of a part that an error has ended: not its text, which may be the program's."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(_OWN):
            place = f" at {os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"trainmon's hooks record no {part} from here on, by an error of their own: {type(error).__name__}{place}"


def is_programs(error: BaseException) -> bool:
    """Return whether a signal handler raised an exception, or another thread (`PyThreadState_SetAsyncExc`)."""
    if not isinstance(error, Exception):
        return True  # no error: the program's end, or the end of what it does
    trace, before = error.__traceback__, None
    if trace is None:
        return False
    while True:
        if before is not None and _is_handler(trace.tb_frame, before):
            return True
        if trace.tb_next is None:
            return _is_sudden(error, trace)
        before, trace = trace.tb_frame, trace.tb_next


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    """Return whether a frame, which has ended, was given the one before it, as signal handlers are."""
    code = frame.f_code
    if not (code.co_argcount > 1 or code.co_flags & _TAKES_ANY) or code.co_filename.startswith(_OWN):
        return False
    given: list[Any] = []
    for value in list(frame.f_locals.values()):
        given += value if type(value) is tuple else (value,)
    return any(value is interrupted for value in given)


_TAKES_ANY = 0x04  # the flag of code with *args


def _is_sudden(error: Exception, trace: TracebackType) -> bool:
    """Return whether nothing at the place where an exception was raised raises that one."""
    import opcode  # rarely needed

    code = trace.tb_frame.f_code
    if "RAISE" in opcode.opname[code.co_code[trace.tb_lasti]]:
        return False
    if not error.args and not isinstance(error, _WITHOUT_TEXT):
        return True  # its class alone was given
    # In our own code the program's classes are raised by functions of its own, which would come last.
    return code.co_filename.startswith(_OWN) and type(error).__module__.partition(".")[0] not in _LIBRARIES
