"""The far side as one line of Python, for a host that has Python but no trainmon.

The line is given to an interactive `python3` on its stdin: its words then need no quotes, so they mean the same whether
a shell reads them (`ssh`) or not (`docker exec`).
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib.util import find_spec
from pathlib import Path

COMMAND = ("python3", "-uqi")  # unbuffered, without a banner, reading statements from stdin
PROMPT = b">>> "  # what it prints to stderr before them

# In the order in which they import each other; packages are empty.
MODULES = (
    "trainhooks.protocol.descriptors",
    "trainhooks.protocol.process_identity",
    "trainhooks.protocol.rundir",
    "trainhooks.protocol.job_key",
    "monitor.remote.far_side",
)
PACKAGES = ("trainhooks", "trainhooks.protocol", "monitor", "monitor.remote")

_LOADER = """
import sys, types
def load(packages, modules):
    for name in packages:
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
    for name, text in modules:
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__ = "/trainmon/" + name
        exec(compile(text, name, "exec"), module.__dict__)
        package, _, last = name.rpartition(".")
        setattr(sys.modules[package], last, module)
"""


def first_line() -> bytes:
    """Return the statement that starts the far side."""
    sources = [(name, _source(name)) for name in MODULES]
    program = f"{_LOADER}\nimport json\nload(json.loads({json.dumps(json.dumps(PACKAGES))}), "
    program += f"json.loads({json.dumps(json.dumps(sources))}))\n"
    program += "sys.modules['monitor.remote.far_side'].main()\n"
    packed = base64.b64encode(zlib.compress(program.encode(), 9)).decode()
    run = f"exec(__import__('zlib').decompress(__import__('base64').b64decode('{packed}')).decode())"
    return f"try: {run}\nfinally: __import__('os')._exit(0)\n\n".encode()


def _source(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
