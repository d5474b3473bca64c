"""Check the command to launch, derive the run's name from it, and mask its secrets."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from trainhooks.protocol.secrets import masked_argv

# Command lines of trainmon's own processes.

_ENTRY = Path(__file__).resolve().parents[1] / "entry.py"


def module_command(module: str, *words: str) -> list[str]:
    """Return the command line of a process that calls `main(*words)` of one of trainmon's modules.

    The path to the packages is on the command line, so the process keeps the caller's environment for the programs
    that it starts, and finds its own modules regardless of PYTHONPATH.
    """
    return [sys.executable, str(_ENTRY), module, *words]


NOT_EXECUTABLE = 126  # the exit codes that shells use
NOT_FOUND = 127


class CannotRun(Exception):
    """The command cannot be started; `code` is the exit code that a shell would give."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class CannotRecord(Exception):
    """The run cannot be recorded; its training has not been started. The message is one line."""


def check_executable(command: Sequence[str]) -> None:
    """Check that the command can be started, before anything is created for it.

    Raises:
        CannotRun: it cannot be started.
    """
    program = command[0]
    if program and shutil.which(program):
        return
    if os.sep in program:
        candidates = [Path(program)]
    else:
        candidates = [Path(directory) / program for directory in os.get_exec_path() if program]
    if not any(path.exists() for path in candidates):
        hint = f"; try: python {program}" if program.endswith(".py") and Path(program).exists() else ""
        raise CannotRun(f"{program or 'an empty command'}: command not found{hint}", NOT_FOUND)
    if Path(program).is_dir():
        raise CannotRun(f"{program}: is a directory", NOT_EXECUTABLE)
    hint = f"; try: python {program}" if program.endswith(".py") else f"; try: chmod +x {program}"
    raise CannotRun(f"{program}: not executable{hint}", NOT_EXECUTABLE)


def for_shell(command: Sequence[str]) -> list[str] | None:
    """Return the command line by which a shell runs a script that has no `#!`; None if the program is no text."""
    program = command[0] if os.sep in command[0] else shutil.which(command[0])
    try:
        with open(program or "", "rb") as file:
            is_text = b"\0" not in file.read(256)
    except OSError:
        return None
    return ["/bin/sh", str(program), *command[1:]] if is_text else None


# The run's name

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


# What may be stored


def masked_command(command: Sequence[str]) -> list[str]:
    """Return the command for display and storage: secrets masked, undecodable bytes replaced."""
    return masked_argv([word.encode("utf-8", "replace").decode("utf-8") for word in command])
