"""Facts, checked where they enter: a table of any content made into RunFacts, and tables merged. Pure.

A value of the wrong type is unknown and costs nothing else. The tables are cleaned before (`sources/decode.py`).
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.limits import MAX_INTEGER

MAX_FACTS = 2000  # of one table; the hooks send far fewer
# No fact is below 0, and none is larger: the FLOPs of a call are the largest.
_BOUNDED = {
    int: Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)],
    float: Annotated[float, msgspec.Meta(ge=0, lt=1e30)],
}


def read(table: dict[str, Any]) -> RunFacts:
    """Return the facts of a table."""
    return RunFacts(table=table, **_read(RunFacts, table))


def updated(known: RunFacts, table: dict[str, Any]) -> RunFacts:
    """Return known facts with a newer table laid over them, one level deep."""
    return _with(known, _merged(known.table, table))


def completed(known: RunFacts, table: dict[str, Any]) -> RunFacts:
    """Return known facts with those of a table that they lack, which come first in their order."""
    return _with(known, _merged(table, known.table))


def _with(known: RunFacts, table: dict[str, Any]) -> RunFacts:
    before = known.table
    changed = {name: value for name, value in table.items() if name not in before or before[name] != value}
    return replace(known, table=table, **_read(RunFacts, changed))


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    out = dict(old)
    for key, value in new.items():
        known = out.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            out[key] = _bounded(known, value)
        elif key in out or len(out) < MAX_FACTS:
            out[key] = value
    return out


def _bounded(table: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return both tables merged, as far as there is room for new names."""
    return {**table, **{key: value for key, value in more.items() if key in table or len(table) < MAX_FACTS}}


def _read(kind: type, table: dict[str, Any]) -> dict[str, Any]:
    """Return those fields of a kind that a table has; the default in place of a value that does not fit."""
    found = {}
    for name, key, null, default, hint in _fields(kind):
        if key in table:
            value = table[key]
            fitting = null if value is None else _fitting(value, hint)
            found[name] = default if fitting is None else fitting
    return found


@cache
def _fields(kind: type) -> list[tuple[str, str, Any, Any, Any]]:
    """Return name, key in a table, meaning of a null, default and type of each field."""
    hints, empty = get_type_hints(kind), kind()
    return [
        (name, known.metadata.get("key", name), known.metadata.get("null"), getattr(empty, name), hints[name])
        for known in fields(kind)
        if (name := known.name) != "table"
    ]


def _fitting(value: Any, hint: Any) -> Any:
    """Return a value as its type has it; None where it does not fit."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not type(None)]
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**_read(hint, value)) if isinstance(value, dict) else None
    if origin is list:
        items = value if isinstance(value, list) else []
        return [known for item in items if (known := _fitting(item, inner[0])) is not None]
    if origin is dict:
        entries = value.items() if isinstance(value, dict) else ()
        return {name: known for name, entry in entries if (known := _fitting(entry, inner[1])) is not None}
    if len(inner) == 1:  # optional
        return _fitting(value, inner[0])
    try:
        return msgspec.convert(value, _BOUNDED.get(hint, hint))
    except msgspec.ValidationError:
        return None
