"""The command that is to be launched: whether it can be, what the run is called after it, what may be written down."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from trainhooks.facts import masked_argv

NOT_EXECUTABLE = 126  # the exit codes that shells use
NOT_FOUND = 127


class CannotRun(Exception):
    """The command cannot be started; `code` is the exit code that a shell would give."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def check(command: Sequence[str]) -> None:
    """See that the command can be started, before anything is made for it.

    Raises:
        CannotRun: it cannot.
    """
    program = command[0]
    if program and shutil.which(program):
        return
    if os.sep in program:
        candidates = [Path(program)]
    else:
        candidates = [Path(directory) / program for directory in os.get_exec_path() if program]
    if not any(path.exists() for path in candidates):
        hint = f"; is it here? try: python {program}" if program.endswith(".py") and Path(program).exists() else ""
        raise CannotRun(f"{program or 'an empty command'}: command not found{hint}", NOT_FOUND)
    if Path(program).is_dir():
        raise CannotRun(f"{program}: is a directory", NOT_EXECUTABLE)
    hint = f"; try: python {program}" if program.endswith(".py") else f"; try: chmod +x {program}"
    raise CannotRun(f"{program}: not executable{hint}", NOT_EXECUTABLE)


# The run's name

_LAUNCHERS = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed"}
_TAKE_MODULES = {"torchrun", "accelerate", "deepspeed"}  # programs whose -m is Python's
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}  # Python's own options that take the next word


def name(command: Sequence[str]) -> str:
    """What to call a run of this command: its script or module, else its program."""
    program = os.path.basename(command[0])
    if _PYTHON.fullmatch(program):
        named = _python_name(command[1:])
        if named is not None:
            return named
    if program in _SHELLS and len(command) > 2 and re.fullmatch(r"-[a-z]*c", command[1]):
        words = re.split(r"[\s;&|()'\"]+", command[2][:4096])
        return _somewhere(words, (".py",)) or _somewhere(words) or program
    return _somewhere(command) or program


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


def _somewhere(words: Sequence[str], endings: tuple[str, ...] = (".py", ".sh")) -> str | None:
    """The first script among the words, or the module that a Python or a launcher among them is to run."""
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
    """A script's name; a package's that is run as `package/__main__.py`."""
    path = Path(word)
    return (path.parent.name if path.stem == "__main__" else "") or path.stem or None


# What may be written down


def masked(command: Sequence[str]) -> list[str]:
    """The command as it may be shown and stored: secrets masked, undecodable bytes replaced."""
    return masked_argv([word.encode("utf-8", "replace").decode("utf-8") for word in command])
