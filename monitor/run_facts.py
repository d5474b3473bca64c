"""Facts, checked where they enter: a table of any content made into RunFacts, and tables merged. Pure.

A value of the wrong type is unknown and costs nothing else. The tables are cleaned before (`sources/decode.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, get_args, get_origin, get_type_hints

from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.limits import MAX_INTEGER

MAX_FACTS = 2000  # of one table; the hooks send far fewer
OWN = ("devices", "passes", "loader_passes", "plan", "printed", "training", "job_left")
MAX_AMOUNT = 1e30  # the FLOPs of a call are the largest

_NONE = RunFacts()


def read(table: dict[str, Any]) -> RunFacts:
    """Return the facts of a table."""
    return RunFacts(table=table, **_read(RunFacts, table))


def read_own(table: dict[str, Any]) -> RunFacts:
    """Return of a table's facts those that each process has for itself."""
    own = {name: table[name] for name in OWN if name in table}
    return RunFacts(**_read(RunFacts, own)) if own else _NONE


def update(known: RunFacts, table: dict[str, Any]) -> None:
    """Lay a newer table over known facts, one level deep."""
    _replace(known, _merged(known.table, table), table)


def complete(known: RunFacts, table: dict[str, Any]) -> None:
    """Add the facts of a table that known ones lack; they come first in their order."""
    _replace(known, _merged(table, known.table), table)


def _replace(known: RunFacts, table: dict[str, Any], news: Iterable[str]) -> None:
    before, known.table = known.table, table
    names = [name for name in news if name in table and (name not in before or before[name] != table[name])]
    for name, value in _read(RunFacts, {name: table[name] for name in names}).items():
        setattr(known, name, value)


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
    of_key, found = _fields(kind), {}
    for key, value in table.items():
        for name, null, default, fitting in of_key.get(key, ()):
            known = null if value is None else fitting(value)
            found[name] = default if known is None else known
    return found


@cache
def _fields(kind: type) -> dict[str, list[tuple[str, Any, Any, Callable[[Any], Any]]]]:
    """Return by the key in a table name, meaning of a null, default and reader of each field."""
    hints, empty = get_type_hints(kind), kind()
    of_key: dict[str, list[tuple[str, Any, Any, Callable[[Any], Any]]]] = {}
    for known in fields(kind):
        row = known.name, known.metadata.get("null"), getattr(empty, known.name), _reader(hints[known.name])
        of_key.setdefault(known.metadata.get("key", known.name), []).append(row)
    of_key.pop("table", None)  # all of it
    return of_key


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return a function that returns a value as its type has it; None where it does not fit."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: hint(**_read(hint, value)) if type(value) is dict else None
    if get_origin(hint) is list:
        return partial(_list, _reader(kinds[0]))
    if get_origin(hint) is dict:
        return partial(_dict, _reader(kinds[1]))
    if len(kinds) == 1:  # optional
        return _reader(kinds[0])
    if hint is int:
        return lambda value: value if type(value) is int and 0 <= value <= MAX_INTEGER else None
    if hint is float:
        return lambda value: float(value) if type(value) in (int, float) and 0 <= value < MAX_AMOUNT else None
    if hint is Any:
        return lambda value: value
    choices = tuple(kinds) or (hint,)
    return lambda value: value if type(value) in choices else None


def _list(fitting: Callable[[Any], Any], value: Any) -> list[Any]:
    items = value if type(value) is list else ()
    return [known for item in items if (known := fitting(item)) is not None]


def _dict(fitting: Callable[[Any], Any], value: Any) -> dict[str, Any]:
    entries = value.items() if type(value) is dict else ()
    return {name: known for name, entry in entries if (known := fitting(entry)) is not None}
