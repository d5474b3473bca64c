"""Real text that every machine has: the source of Python's own standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def modules() -> Iterator[str]:
    """The source of each module, in the order of their names."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield path.read_text(encoding="utf-8")


def source(size: int) -> bytes:
    """The first `size` bytes of all modules, end to end."""
    text = b""
    for module in modules():
        text += module.encode()
        if len(text) >= size:
            break
    return text[:size]


def documented_functions(longest: int) -> list[tuple[str, str]]:
    """Each function's signature, and its docstring's first paragraph where that has up to `longest` characters."""
    found = []
    for module in modules():
        for node in ast.walk(ast.parse(module)):
            if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
                paragraph = " ".join(doc.split("\n\n")[0].split())
                if 0 < len(paragraph) <= longest:
                    found.append((f"def {node.name}({ast.unparse(node.args)}):", paragraph))
    return found
