"""Processes that trainmon starts for itself, by their command lines."""

from __future__ import annotations

import sys
from pathlib import Path

_ENTRY = Path(__file__).resolve().parents[1] / "entry.py"


def command(module: str, *words: str) -> list[str]:
    """The command line of a process that calls `main(*words)` of a module of ours.

    The way to our packages is on the command line, so the process can have the caller's environment as it is, for the
    programs that it starts in turn, and finds its own modules whatever PYTHONPATH says.
    """
    return [sys.executable, str(_ENTRY), module, *words]
