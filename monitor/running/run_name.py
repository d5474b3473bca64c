"""The name of a run, from its command."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed"}
_TAKE_MODULES = {"torchrun", "accelerate", "deepspeed"}  # programs whose -m is Python's
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # Python's own options that take the next word


def run_name(command: Sequence[str]) -> str:
    """Return the name for a run of this command: its script or module, else its program."""
    program = os.path.basename(command[0])
    if _PYTHON.fullmatch(program):
        named = _python_name(command[1:])
        if named is not None:
            return named
    if program in _SHELLS and len(command) > 2 and re.fullmatch(r"-[a-z]*c", command[1]):
        words = re.split(r"[\s;&|()'\"]+", command[2][:4096])
        return _script_or_module(words, (".py",)) or _script_or_module(words) or program
    return _script_or_module(command) or program


def _python_name(arguments: Sequence[str]) -> str | None:
    words = iter(arguments)
    for word in words:
        if word == "-m":
            module = next(words, "")
            return None if module in _LAUNCHERS else module or None
        if word in ("-c", "-"):
            return None
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return _stem(word)
    return None


def _script_or_module(words: Sequence[str], endings: tuple[str, ...] = (".py", ".sh")) -> str | None:
    """Return the first script among the words, or the module that a Python or launcher among them runs; else None."""
    takes_modules = False
    rest = iter(words)
    for word in rest:
        program = os.path.basename(word)
        if program in _TAKE_MODULES or _PYTHON.fullmatch(program):
            takes_modules = True
        elif takes_modules and word in ("-m", "--module"):
            module = next(rest, "")
            if module and module not in _LAUNCHERS:
                return module
        elif word.endswith(endings) and _stem(word):
            return _stem(word)
    return None


def _stem(word: str) -> str | None:
    """Return a script's name; for `package/__main__.py` the package's."""
    path = Path(word)
    return (path.parent.name if path.stem == "__main__" else "") or path.stem or None
