"""Short forms for the probes: programs of a few lines, each with one question."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent
from typing import Any

from tests.harmless.compare import PYTHON, Program

ADDRESSES = re.compile(rb"0x[0-9a-f]+")


def python(family: str, name: str, text: str, *flags: str, **further: Any) -> Program:
    """Return a probe that runs `text` as train.py."""
    files = {"train.py": dedent(text), **further.pop("files", {})}
    return Program(name, family, (PYTHON, *flags, "train.py"), files=files, **further)


def bash(family: str, name: str, text: str, **further: Any) -> Program:
    """Return a probe that runs `text` by bash; `$PY` is the Python of the tests."""
    env = {"PY": PYTHON, **further.pop("env", {})}
    return Program(name, family, ("/bin/bash", "-c", dedent(text)), env=env, **further)


def caller(family: str, name: str, around: str, text: str, **further: Any) -> Program:
    """Return a probe of what a caller sees: a shell runs `around`, in which "$@" is train.py, bare or watched."""
    return python(family, name, text, setup=f"PY={PYTHON}\n{dedent(around)}\nexit 0", **further)


def compiled(family: str, name: str, text: str, **further: Any) -> Program:
    """Return a probe in C. It is compiled before it is watched."""
    files = {"main.c": dedent(text), **further.pop("files", {})}
    setup = "gcc -w -o program main.c || exit 99\n" + further.pop("setup", "")
    return Program(name, family, ("./program",), files=files, setup=setup, needs=("gcc",), **further)


def without(*patterns: str) -> Callable[[bytes], bytes]:
    """Return a mask that takes what matches one of the patterns out of the output, line by line."""
    masked = re.compile("|".join(patterns).encode(), re.MULTILINE)
    return lambda output: masked.sub(b"~", output)
