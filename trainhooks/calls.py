"""What a line of the user's is calling at the moment: `print`, `json.dump`. It tells writing from computing.

It is read off the source and checked against the compiled code, which a file that was edited meanwhile does not match.
"""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType
from typing import Any, Dict, Optional, Tuple

MAX_KNOWN = 500  # calls kept; a program stands in a few dozen
MAX_LINES = 40  # of one call; a longer one is no call that somebody wants named
MAX_CALL = 48  # characters

_known: Dict[Tuple[str, int, str, int], Optional[str]] = {}  # by the place; a code object's own hash is slow


def called(frame: FrameType) -> Optional[str]:
    """The dotted name of what this frame is calling; None where it calls nothing, or that is not clear."""
    code = frame.f_code
    key = (code.co_filename, code.co_firstlineno, code.co_name, frame.f_lasti)
    if key not in _known:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = _name(frame)
    return _known[key]


def _name(frame: FrameType) -> Optional[str]:
    try:
        text = _expression(frame).strip()
        tree = ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):  # no Python, or none that is there
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    # With columns the expression is the call itself; without them the line may hold several, and which is not known.
    if not calls or (len(calls) > 1 and not hasattr(frame.f_code, "co_positions")):
        return None
    name = _dotted(calls[0].func)
    code = frame.f_code
    here = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    return name if name and len(name) <= MAX_CALL and all(part in here for part in name.split(".") if part) else None


def _expression(frame: FrameType) -> str:
    """The source of the instruction that is carried out: before Python 3.11 its whole line."""
    code, line = frame.f_code, frame.f_lineno
    if not hasattr(code, "co_positions"):
        return linecache.getline(code.co_filename, line)
    span: Any = next(islice(code.co_positions(), max(0, frame.f_lasti) // 2, None), None)
    if span is None or None in span or not 0 <= span[1] - span[0] < MAX_LINES:
        return ""
    first, last, begin, end = span
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace")
    return text if _is_call(text) else ""


def _is_call(text: str) -> bool:
    return isinstance(ast.parse(text.strip(), mode="eval").body, ast.Call)


def _dotted(node: ast.expr) -> str:
    """`os.path.join`; `.write` where what comes before is no name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))
