"""Check the command to launch, mask its secrets, and make the command lines of trainmon's own processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainhooks.protocol.secrets import mask_argv

_ENTRY = Path(__file__).resolve().parents[1] / "entry.py"


def module_command(module: str, *words: str) -> list[str]:
    """Return the command line of a process that calls `main(*words)` of one of trainmon's modules.

    The path to the packages is on the command line, so the process keeps the caller's environment for the programs
    that it starts, and finds its own modules regardless of PYTHONPATH.
    """
    return [sys.executable, str(_ENTRY), module, *words]


def start_beside(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Start such a process beside a run, for as long as that goes on.

    Raises:
        OSError: no process can be started.
    """
    nothing = subprocess.DEVNULL
    command = module_command(module, *words)
    return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


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


# What may be stored


def masked_command(command: Sequence[str]) -> list[str]:
    """Return the command for display and storage: secrets masked, undecodable bytes replaced."""
    return mask_argv([word.encode("utf-8", "replace").decode("utf-8") for word in command])
