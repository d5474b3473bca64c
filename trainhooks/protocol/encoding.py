"""Events as lines of JSON: fields that hold their default are left out; msgspec's encoder where it is installed."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Callable, Dict, List, Tuple

from trainhooks.protocol.events import Event, Frames
from trainhooks.protocol.limits import MAX_LINE, MAX_NAME

_ALWAYS = frozenset(("protocol", "rank", "status"))  # written even where they hold their default

_DEFAULTS: Dict[type, List[Tuple[str, Any]]] = {}


def _defaults(cls: type) -> List[Tuple[str, Any]]:
    rows = []
    for f in dataclasses.fields(cls):
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        rows.append((f.name, _DEFAULTS if f.name in _ALWAYS else default))
    _DEFAULTS[cls] = rows
    return rows


def to_dict(event: Event) -> Dict[str, Any]:
    """Return the event as the mapping of one line: `kind` first, defaults left out."""
    cls = type(event)
    out: Dict[str, Any] = {"kind": cls.kind}
    for name, default in _DEFAULTS.get(cls) or _defaults(cls):
        value = getattr(event, name)
        if value is not default and value != default:
            out[name] = value
    if cls is Frames and "rows" in out:
        out["rows"] = [(phase, place.written(), samples) for phase, place, samples in out["rows"]]
    return out


# A file that shows that a package is the library: a program may have a module of that name, and importing it runs it.
LIBRARY_FILES = {"msgspec": "json.py"}


def optional_library(name: str) -> Any:
    """Return an optional library; None where it is missing, broken, or a module of the program's own."""
    try:
        loaded = sys.modules.get(name)
        spec = find_spec(name) if loaded is None else getattr(loaded, "__spec__", None)
        places = (spec.submodule_search_locations or ()) if spec is not None else ()
        if not any(os.path.exists(os.path.join(place, LIBRARY_FILES[name])) for place in places):
            return None
        return import_module(name)
    except Exception:  # ImportError where it is missing; a broken one may raise anything
        return None


def encoder() -> Callable[[Dict[str, Any]], bytes]:
    """Return the fastest JSON encoder available: msgspec's where it is installed, else the standard library's."""
    msgspec = optional_library("msgspec")
    if msgspec is None:
        encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=str).encode
        return lambda mapping: encode(mapping).encode("ascii")
    return msgspec.json.Encoder(enc_hook=str).encode  # type: ignore[no-any-return]


def lines_encoder() -> Callable[[List[Dict[str, Any]]], bytes]:
    """Return an encoder of several events, each on a line of its own."""
    msgspec = optional_library("msgspec")
    if msgspec is None:
        encode = encoder()
        return lambda mappings: b"".join(encode(mapping) + b"\n" for mapping in mappings)
    return msgspec.json.Encoder(enc_hook=str).encode_lines  # type: ignore[no-any-return]


def fitting_line(event: Dict[str, Any], encode: Callable[[List[Dict[str, Any]]], bytes]) -> bytes:
    """Return an event as a line; of one that is too large, what identifies it, and its numbers."""
    line = encode([event])
    return line if len(line) <= MAX_LINE else encode([_without_texts(event)])


def _without_texts(event: Dict[str, Any]) -> Dict[str, Any]:
    """Return what identifies an event that is too large for a line, and its numbers."""
    kept = {
        key: value
        for key, value in event.items()
        if isinstance(value, (int, float)) or key in ("kind", "producer", "name", "status")
    }
    if "phases" in event:
        kept["phases"] = event["phases"][:64]
    if event["kind"] == "note":
        kept["text"] = event["text"][:MAX_NAME]
    return kept
