"""Libraries that the hooks use where the training's Python has them, and can do without."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# What shows that a package is the library. A program may have a module of that name, and to import that is to run it.
PARTS = {"zmq": "backend", "msgspec": "json.py"}


def library(name: str) -> Any:
    """The library `name`; None where it is missing, broken, or the program has a module of its own of that name."""
    try:
        loaded = sys.modules.get(name)
        spec = find_spec(name) if loaded is None else getattr(loaded, "__spec__", None)
        places = (spec.submodule_search_locations or ()) if spec is not None else ()
        if not any(os.path.exists(os.path.join(place, PARTS[name])) for place in places):
            return None
        return import_module(name)
    except Exception:  # ImportError where it is missing; a broken one may raise anything
        return None
