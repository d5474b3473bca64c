"""What programs read: the version of what commands print, and JSON Schemas of it and of journals, from the types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trainhooks.protocol.events import KINDS

SCHEMA_VERSION = 1  # rises where a key goes or means something else; a new key does not raise it
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# Of a type, what its JSON leaves out: the screens alone use it.
SCREENS_ONLY = {"Alert": ("slow_step", "rank")}
# Of a type, what is a table of any names in JSON, as docs/protocol.md describes it.
TABLES = {"Run": ("facts",)}


def versioned(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of an object with the version first."""
    return {"schema_version": SCHEMA_VERSION, **keys}


def encoded(output: Any) -> str:
    """Return a dataclass as JSON in one line, with the version. Non-finite numbers are null."""
    return msgspec.json.encode(versioned(msgspec.to_builtins(output, enc_hook=str))).decode()


def schema(of: Any, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass, or of a list of one, as commands print it.

    Every key is always there: unknown is null. Further keys may be added.
    """
    raw = msgspec.json.schema(of, schema_hook=lambda _: {"type": "string"})
    definitions: dict[str, Any] = raw.pop("$defs", {})
    for name, each in definitions.items():
        _as_printed(name, each)
    top = raw.get("items", raw)["$ref"].rpartition("/")[2]
    definitions[top]["properties"] = {"schema_version": {"const": SCHEMA_VERSION}, **definitions[top]["properties"]}
    definitions[top]["required"].insert(0, "schema_version")
    used = _used(definitions, top)
    return {"$schema": DIALECT, "title": title, **raw, "$defs": {name: definitions[name] for name in sorted(used)}}


def journal_schema(title: str) -> dict[str, Any]:
    """Return the JSON Schema of a line of a journal, as this version writes it; readers know older forms as well."""
    lines, definitions = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for kind, event in KINDS.items():
        definition = definitions[event.__name__]
        definition["properties"] = {"kind": {"const": kind}, **definition["properties"]}
        definition["required"] = ["kind", *definition["required"]]
    return {"$schema": DIALECT, "title": title, "anyOf": list(lines), "$defs": definitions}


def _as_printed(name: str, definition: dict[str, Any]) -> None:
    """Change the definition of a type that is read into that of what is printed."""
    properties = definition.get("properties", {})
    for key in SCREENS_ONLY.get(name, ()):
        del properties[key]
    for key in TABLES.get(name, ()):
        properties[key] = {"type": "object"}
    for each in properties.values():
        each.pop("default", None)
    definition["required"] = list(properties)


def _used(definitions: dict[str, Any], first: str) -> set[str]:
    """Return the names of all definitions that one refers to, itself included."""
    known, waiting = set[str](), [first]
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting += _references(definitions[name])
    return known


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
