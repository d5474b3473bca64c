"""Lanes that are wrong in known ways. A check that none of them fails is no check."""

from __future__ import annotations

from typing import Any


def apply(name: str, face: Any) -> None:
    """Make this process's hooks wrong."""
    if name:
        MUTANTS[name](face)


MUTANTS: dict[str, Any] = {}
