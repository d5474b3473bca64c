"""Text that is available on every machine: the source of Python's standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def modules() -> Iterator[str]:
    """Yield the source of each module, ordered by name."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield path.read_text(encoding="utf-8")


def source(size: int) -> bytes:
    """Return the first `size` bytes of all modules, concatenated."""
    text = b""
    for module in modules():
        text += module.encode()
        if len(text) >= size:
            break
    return text[:size]


def documented_functions(longest: int) -> list[tuple[str, str]]:
    """Return pairs of a function's signature and its docstring's first paragraph, if that has up to `longest` chars."""
    pairs = []
    for module in modules():
        for node in ast.walk(ast.parse(module)):
            if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
                paragraph = " ".join(doc.split("\n\n")[0].split())
                if 0 < len(paragraph) <= longest:
                    pairs.append((f"def {node.name}({ast.unparse(node.args)}):", paragraph))
    return pairs
