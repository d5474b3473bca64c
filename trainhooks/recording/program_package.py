"""The package that a program is, where an installed command or `python -m` started it: its lines are the program's."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Optional

from trainhooks.recording import sources

# An installed command's script imports a function and ends with it, in a dozen lines.
_COMMAND = re.compile(r"(?ms)^\s*from\s+([A-Za-z_]\w*)[\w.]*\s+import\s+(\w+)\b.*\bsys\.exit\(\s*\2\(")
MAX_SCRIPT_LINES = 100
_PACKAGES = f"-packages{os.sep}"
# torch's launchers start programs; all that these call of torch lies below lines of their own.
_NO_PROGRAMS = frozenset(("torch",))

_known: Optional[str] = None  # None: the main module is still to be loaded


def program_package() -> str:
    """Return the name of the package; empty: the program is a file of its own, or unknown."""
    global _known
    if _known is None:
        main = sys.modules.get("__main__")
        file = getattr(main, "__file__", None)
        if not isinstance(file, str):
            return ""
        found: Optional[str] = _of_module(getattr(main, "__spec__", None)) or _of_file(file)
        if found is None:
            return ""
        _known = "" if found in _NO_PROGRAMS else found
    return _known


def holds(path: str) -> bool:
    """Return whether an installed file belongs to that package."""
    package = program_package()
    return bool(package) and f"{_PACKAGES}{package}{os.sep}" in path


def _of_module(spec: Any) -> str:
    name = getattr(spec, "name", None)
    return name.partition(".")[0] if isinstance(name, str) and not name.startswith("__") else ""


def _of_file(path: str) -> Optional[str]:
    """Return the package that a file starts; None: it has not been read yet."""
    if _PACKAGES in path:
        return path.rpartition(_PACKAGES)[2].partition(os.sep)[0]
    source = sources.known(path)
    if source is None:
        return None
    text = "".join(source.lines[:MAX_SCRIPT_LINES])
    command = _COMMAND.search(text) if len(source.lines) <= MAX_SCRIPT_LINES else None
    return command[1] if command is not None else ""
