"""Sample the stack of the training thread, at most ten times a second.

A sample names the user's own line for time that no phase explains. It costs some ten microseconds of the background
thread and none of the training's own code. TRAINMON_FRAMES=0 turns sampling off. The line that an exception came from
is named in the same way.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import sysconfig
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from trainhooks.events import MAX_NAME, clean

MAX_CALLS = 500  # kept names; a program is sampled in a few dozen calls
MAX_CALL_LINES = 40  # source lines; a longer call is not named
MAX_CALL_NAME = 48  # characters
VARIABLE = "TRAINMON_FRAMES"
FROM = ", from "
MIN_LIBRARY_PLACE = 12  # characters; a shorter place is not recognized
MAX_PLACES = 100  # between two reports; further ones are not counted
MAX_RAISED = 2000  # frames of a traceback

_calls: Dict[Tuple[str, int, str, int], Optional[str]] = {}  # by place: hashing a code object is slow


class Position(NamedTuple):
    """Where a frame stands, without the frame: a frame that is kept keeps the tensors of its function in memory."""

    code: CodeType
    line: int
    instruction: int  # bytes into the code

    @classmethod
    def of(cls, frame: FrameType) -> Position:
        return cls(frame.f_code, frame.f_lineno, frame.f_lasti)


def called(position: Position) -> Optional[str]:
    """Return the dotted name of what is called there (`print`, `json.dump`); None where it is unclear or nothing.

    Read from the source and checked against the compiled code, which an edited file does not match.
    """
    code = position.code
    key = (code.co_filename, code.co_firstlineno, code.co_name, position.instruction)
    if key not in _calls:
        if len(_calls) >= MAX_CALLS:
            _calls.clear()
        _calls[key] = _name(position)
    return _calls[key]


def _name(position: Position) -> Optional[str]:
    code = position.code
    try:
        text = _expression(position).strip()
        tree = ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):  # no Python, or no source
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    # With columns the expression is the call itself; without them a line may hold several calls.
    if not calls or (len(calls) > 1 and not hasattr(code, "co_positions")):
        return None
    name = _dotted(calls[0].func)
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    return (
        name if name and len(name) <= MAX_CALL_NAME and all(part in names for part in name.split(".") if part) else None
    )


def _expression(position: Position) -> str:
    """Return the source of the current instruction; before Python 3.11 its whole line."""
    code, line, instruction = position
    if not hasattr(code, "co_positions"):
        return linecache.getline(code.co_filename, line)
    span: Any = next(islice(code.co_positions(), max(0, instruction) // 2, None), None)
    if span is None or None in span or not 0 <= span[1] - span[0] < MAX_CALL_LINES:
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
    """Return `os.path.join`; `.write` where what comes before is no name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


_TORCH = f"-packages{os.sep}torch{os.sep}"
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}
)


class Sampler:
    """Count the stack positions of a thread, by phase."""

    def __init__(self) -> None:
        self.wanted = os.environ.get(VARIABLE, "1") != "0"
        self._rows: Dict[Tuple[str, str], int] = {}
        self._names: Dict[str, str] = {}

    def sample(self, thread: int, phase: str) -> Optional[str]:
        """Count the thread's innermost user frame under `phase`, and return it."""
        # The frames are let go of before their source is read, which can take long on a slow disk.
        positions = _positions(_standing(sys._current_frames().get(thread))) if self.wanted else None
        place = self._place(*positions) if positions is not None else None
        if place is not None:
            key = (phase, place)
            if key not in self._rows and len(self._rows) >= MAX_PLACES // 2:
                key = (phase, place.rpartition(FROM)[2])  # a library's places can be many
            if key in self._rows or len(self._rows) < MAX_PLACES:
                self._rows[key] = self._rows.get(key, 0) + 1
        return place

    def take(self) -> List[Tuple[str, str, int]]:
        """Return the samples since the last call: phase, place, how many."""
        rows = [(phase, place, count) for (phase, place), count in self._rows.items()]
        self._rows = {}
        return rows

    def _place(
        self, users: Optional[Position], library: Optional[Position], innermost: Optional[Position]
    ) -> Optional[str]:
        """Return `train.py:41 (json.load) in read`: the innermost frame of the user's code, else the innermost of all.

        In brackets what it calls there, where that is clear. The innermost frame of a library that runs inside comes
        first: `transformers/trainer.py:3821 (loss.item) in _inner_training_loop, from train.py:83 (...) in ...`. Torch
        and the standard library are named so only where it is unclear what the user's line calls.
        """
        if users is None:
            other = library if library is not None else innermost
            return self._text(other, called(other)) if other is not None else None
        call = called(users)
        text = self._text(users, call)
        inner = library if library is not None or call is not None else innermost
        return text if inner is None else self._from(inner, text)

    def _from(self, inner: Position, users: str) -> str:
        """Return both frames; the inner one is cut so that the user's stays whole."""
        room = MAX_NAME - len(FROM) - len(users)
        return self._text(inner, called(inner))[:room].rstrip() + FROM + users if room >= MIN_LIBRARY_PLACE else users

    def _text(self, position: Position, call: Optional[str]) -> str:
        path, function = position.code.co_filename, position.code.co_name
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = _short(path)
        place = f"{name}:{position.line}"
        return clean(f"{place} ({call}) in {function}" if call else f"{place} in {function}", MAX_NAME)


# The innermost frame of the user's code, of a library that it called, and of all that it called.
Positions = Tuple[Optional[Position], Optional[Position], Optional[Position]]


def _positions(stack: Iterable[Position]) -> Positions:
    """Return the positions that name a place in a stack, the innermost first."""
    innermost: Optional[Position] = None
    library: Optional[Position] = None
    for position in stack:
        path = position.code.co_filename
        if not path.startswith(_OWN):
            if _is_users(path):
                return position, library, innermost
            if innermost is None:
                innermost = position
            if library is None and _is_library(path):
                library = position
    return None, library, innermost


def _standing(frame: Optional[FrameType]) -> Iterator[Position]:
    """Yield the positions of a running thread, the innermost first."""
    while frame is not None:
        yield Position.of(frame)
        frame = frame.f_back


# Torch passes on what a worker process or a replica's thread raised as a text, with the traceback in the message.
_PASSED_ON = re.compile(r"(?s)^(Caught \S+ in [^\n]{1,80})\nOriginal Traceback \(most recent call last\):\n(.*)")
_FILE_LINE = re.compile(r'(?m)^  File "([^"\n]+)", line (\d+), in (\S+)$')


def raised_at(error: BaseException) -> Optional[str]:
    """Return the place that an exception came from, as `Sampler.sample` writes it; None where it has no traceback."""
    found = _passed_on(error)
    if found is not None:
        rows = _FILE_LINE.findall(found[2])
        path, line, function = next((row for row in reversed(rows) if _is_users(row[0])), ("", "", ""))
        if path:
            return clean(f"{_short(path)}:{line} in {function}", MAX_NAME)
    stack: List[Position] = []
    trace = error.__traceback__
    while trace is not None and len(stack) < MAX_RAISED:
        stack.append(Position(trace.tb_frame.f_code, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
    return Sampler()._place(*_positions(reversed(stack))) if stack else None


def said(error: BaseException) -> str:
    """Return type and message of an exception; of one that torch passed on, what was raised and where."""
    found = _passed_on(error)
    if found is not None:
        return f"{found[2].strip().rpartition(chr(10))[2]} ({found[1]})"
    return f"{type(error).__name__}: {error}"


def _passed_on(error: BaseException) -> "Optional[re.Match[str]]":
    args = error.args
    return _PASSED_ON.match(args[0]) if args and isinstance(args[0], str) else None


def _is_library(path: str) -> bool:
    """Return whether a frame outside the user's code is of a library other than torch and Python's own."""
    return not (path.startswith(("<", *_LIBRARY)) and "-packages" not in path) and _TORCH not in path


def _is_users(path: str) -> bool:
    if path.startswith("<") or "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith(_LIBRARY)


def _short(path: str) -> str:
    """Return a path from the working directory, else its last two parts."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):
        inside = path
    return os.sep.join(path.split(os.sep)[-2:]) if inside.startswith("..") or "-packages" in path else inside
