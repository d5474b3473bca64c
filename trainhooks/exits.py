"""Ways out of a program that no exit handler sees: `os._exit`, and the calls that put another program in its place.

Both are replaced where this process records, so that its last step is written first. Everything else about them stays:
they are pickled by their names, so all modules get the same objects, and a process that does not record only passes on.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional

# Called with whether the program may go on (an exec can fail), and with the error that it ends by, if any.
Part = Callable[[bool, Optional[BaseException]], None]

EXIT = "_exit"
EXECS = ("execv", "execve")  # the other exec functions call these

_originals: Dict[str, Callable[..., Any]] = {}  # by name, once they are replaced
_ours: Dict[str, Callable[..., Any]] = {}


def watch_exits(part: Part) -> None:
    """Have `part` called before this process, or one forked from it, ends without exit handlers. Once."""
    if _originals:
        return
    for name in (EXIT, *EXECS):
        original = getattr(os, name, None)
        if original is None:
            continue
        make = _wrap_exit if name == EXIT else _wrap_exec
        _ours[name] = functools.wraps(original)(make(original, part))
        _originals[name] = original
    for module in filter(None, (sys.modules.get(os.name), os)):  # where they are pickled from, and where they are used
        _put(module)


def put_everywhere() -> None:
    """Replace the functions in all modules that have imported them before."""
    for module in list(sys.modules.values()):
        if type(module) is ModuleType:
            _put(module)


def _put(module: ModuleType) -> None:
    names = vars(module)
    for name, original in _originals.items():
        if names.get(name) is original and names is not globals():
            setattr(module, name, _ours[name])


def _wrap_exit(original: Callable[..., Any], part: Part) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            status = args[0] if args else kwargs["status"]
            if isinstance(status, int):  # anything else is an error of the call, and the program goes on
                error = sys.exc_info()[1] if status else None
                part(False, None if isinstance(error, SystemExit) else error)
        except BaseException:  # a signal handler's too: without us the process would be gone by now
            pass
        return original(*args, **kwargs)

    return wrapper


def _wrap_exec(original: Callable[..., Any], part: Part) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            if _can_start(args[0] if args else kwargs["path"]):
                part(True, None)
        except BaseException:  # as above
            pass
        return original(*args, **kwargs)

    return wrapper


def _can_start(path: Any) -> bool:
    """Return whether an exec of this file may succeed: `os.execvp` tries one directory of PATH after the other."""
    return isinstance(path, int) or (os.path.isfile(path) and os.access(path, os.X_OK))
