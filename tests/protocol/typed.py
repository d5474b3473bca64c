"""Which facts have a type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from monitor import run_facts

FREE = ("config",)  # a program's own names


def untyped(table: dict[str, Any]) -> list[str]:
    """Return the dotted names of facts that no field has, value by value; but for tables of any names."""
    facts = run_facts.read(table)
    return [name for key, value in table.items() if key not in FREE for name in _lost([facts], key, value)]


def _lost(holders: list[Any], key: str, value: Any) -> Iterator[str]:
    """Yield what none of the holders, which are read from one table, has of an entry."""
    found = [reading for holder in holders for reading in _readings(holder, key)]
    if isinstance(value, dict):
        inner = [name for inside, one in value.items() for name in _lost(found, inside, one)]
        yield from (f"{key}.{name}" for name in inner) if found else [key]
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        rows = found[0] if found else []
        if len(rows) != len(value):
            yield key
        for row, one in zip(rows, value, strict=False):
            yield from (f"{key}.{name}" for inside in one for name in _lost([row], inside, one[inside]))
    elif not found or not (value is None or value in found):
        yield key


def _readings(holder: Any, key: str) -> list[Any]:
    if is_dataclass(holder):
        return [getattr(holder, known.name) for known in fields(holder) if known.metadata.get("key", known.name) == key]
    return [holder[key]] if isinstance(holder, dict) and key in holder else []
