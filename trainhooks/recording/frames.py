"""Sample the stack of the training thread, a few times a second.

A sample names the user's own line for time that no phase explains, and what a library does there. It costs some ten
microseconds of the background thread and none of the training's own code. TRAINMON_FRAMES=0 turns sampling off. The
line that an exception came from is named in the same way.
"""

from __future__ import annotations

import ast
import opcode
import os
import re
import sys
import sysconfig
import threading
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from trainhooks.protocol import calls
from trainhooks.protocol.events import Frames
from trainhooks.protocol.limits import MAX_NAME, MAX_OTHER_THREADS, clean
from trainhooks.protocol.places import MAX_FRAMES, Line, Place, ThreadStack
from trainhooks.protocol.vocabulary import BETWEEN_STEPS
from trainhooks.recording import program_package, sources

MAX_CACHED_LINES = 500  # kept; a program is sampled in a few dozen
MAX_CALL_LINES = 40  # source lines; a longer call is not named
MAX_CALL_NAME = 48  # characters
FRAMES_VARIABLE = "TRAINMON_FRAMES"
MAX_REPORTED_PLACES = 100  # between two reports; further ones are not counted
MAX_RAISED = 2000  # frames of a traceback
MAX_LIBRARY_FRAMES = 60  # below the user's line that are looked at for what the library does

# A short run needs many samples soon; in a long one few are enough, and cost less.
PERIODS = ((30.0, 0.05), (600.0, 0.1))  # up to so many seconds after the first sample: seconds between two
LONG_RUN_PERIOD = 0.2
SLACK_SECONDS = 0.02  # whoever asks wakes on a clock of its own, a little early or late
# Between two reports: at first often, so that a short run shows what grows in it.
FRAMES_SECONDS, FIRST_REPORT_SECONDS = 30.0, 1.0

# There a collection of garbage lets other threads run inside `ast.parse`, which fails if they parse, too (gh-106905).
_TREES_COLLIDE = (3, 11) <= sys.version_info < (3, 11, 8)
_ESCAPE = re.compile(r"\\.")  # of the same length: columns stay, and strings stay closed
_WITH = re.compile(r"\s*(?:async\s+)?with\s+([A-Za-z_][\w.]*)\s*(?::|,|\bas\b)")
# Instructions that enter a `with` block; from Python 3.14 on it is a plain call.
_ENTERS = ("BEFORE_WITH", "SETUP_WITH") if sys.version_info < (3, 14) else ("CALL",)
_Key = Tuple[str, int, str, int]  # of a position: hashing a code object is slow
_lines: Dict[_Key, Line] = {}


class Position(NamedTuple):
    """Where a frame stands, without the frame: a frame that is kept keeps the tensors of its function in memory."""

    code: CodeType
    line: int
    instruction: int  # bytes into the code

    @classmethod
    def of(cls, frame: FrameType) -> Position:
        return cls(frame.f_code, frame.f_lineno, frame.f_lasti)

    @property
    def key(self) -> _Key:
        code = self.code
        return code.co_filename, code.co_firstlineno, code.co_name, self.instruction


class _Stack(NamedTuple):
    """One sample: the innermost frame of the user's code, of a library that it called, and of all that it called."""

    users: Optional[Position]
    library: Optional[Position]
    innermost: Optional[Position]
    inside: List[Tuple[str, str]]  # file and function of the frames below the user's, innermost first


def line_at(position: Position) -> Line:
    """Return the line at which a frame stands."""
    key = position.key
    line = _lines.get(key)
    if line is None:
        if len(_lines) >= MAX_CACHED_LINES:
            _lines.clear()
        file, function = clean(_short(key[0]), MAX_NAME), clean(key[2], MAX_NAME)
        line = _lines[key] = Line(file, position.line or 0, function, called_name(position) or "").fitted(MAX_NAME)
    return line


def called_name(position: Position) -> Optional[str]:
    """Return the dotted name of what is called there (`print`, `json.dump`); None where it is unclear or nothing.

    Read from the source and checked against the compiled code, which an edited file does not match.
    """
    code = position.code
    try:
        text = _expression(position).strip()
        tree = _parse_alone(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):  # no Python, or no source
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    # With columns the expression is the call itself; without them a line may hold several calls.
    if not found or (len(found) > 1 and not hasattr(code, "co_positions")):
        return None
    name = _dotted(found[0].func)
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    return (
        name if name and len(name) <= MAX_CALL_NAME and all(part in names for part in name.split(".") if part) else None
    )


def _expression(position: Position) -> str:
    """Return the source of the current instruction; before Python 3.11 its whole line."""
    code, line, instruction = position
    if not hasattr(code, "co_positions"):
        return sources.line(code.co_filename, line)
    span: Any = next(islice(code.co_positions(), max(0, instruction) // 2, None), None)
    if span is None or None in span or not 0 <= span[1] - span[0] < MAX_CALL_LINES:
        return ""
    first, last, begin, end = span
    lines = [sources.line(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace")
    return text if _is_call(text) else ""


def _parse_alone(text: str, mode: str = "exec") -> Any:
    """Return what `parse_source` does, for a thread of ours: not while another thread parses.

    Raises:
        SyntaxError: another one does, or it is no Python.
    """
    if _TREES_COLLIDE:
        here = threading.get_ident()
        others = (frame for ident, frame in sys._current_frames().items() if ident != here)
        if any(each.code is ast.parse.__code__ for frame in others for each in islice(_positions(frame), 16)):
            raise SyntaxError
    return parse_source(text, mode)


def parse_source(text: str, mode: str = "exec") -> Any:
    """Return the tree of a program's source, in which the contents of strings may differ.

    A sequence such as `\\s` in a string makes a warning each time that it is parsed, in the program's name.

    Raises:
        SyntaxError: it is no Python.
    """
    return ast.parse(_ESCAPE.sub("__", text), mode=mode)


def _is_call(text: str) -> bool:
    return isinstance(_parse_alone(text.strip(), "eval").body, ast.Call)


def _dotted(node: ast.expr) -> str:
    """Return `os.path.join`; `.write` where what comes before is no name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def _enters(position: Position) -> bool:
    """Return whether a `with` block is being entered with something that has a name."""
    code, line, instruction = position
    if not 0 <= instruction < len(code.co_code) or opcode.opname[code.co_code[instruction]] not in _ENTERS:
        return False
    try:
        match = _WITH.match(sources.line(code.co_filename, line))
    except Exception:  # as `_name`: a file that is no text may raise anything
        return False
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    return match is not None and all(part in names for part in match[1].split("."))


_TORCH = f"-packages{os.sep}torch{os.sep}"
_MODEL_CALL = f"{_TORCH}nn{os.sep}modules{os.sep}module.py"
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARY = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}
)


class Sampler:
    """Count the stack positions of a thread, by phase."""

    def __init__(self) -> None:
        self.wanted = os.environ.get(FRAMES_VARIABLE, "1") != "0"
        self._rows: Dict[Tuple[str, Place], int] = {}
        self._latest: Optional[Tuple[float, Tuple[str, Place]]] = None  # the newest sample: its time, and its row
        self._activities: Dict[_Key, Optional[str]] = {}  # of the user's own calls
        self._first: Optional[float] = None  # when sampling began
        self._due = 0.0
        self._begin = 0.0  # of what the next report covers
        self._period = PERIODS[0][1]

    def is_due(self, now: float) -> bool:
        """Return whether it is time for a sample, and plan the next one."""
        if now < self._due:
            return False
        if self._first is None:
            self._first = self._begin = now
        self._due = now + self._period_at(now) - SLACK_SECONDS
        return True

    def _period_at(self, now: float) -> float:
        age = now - (now if self._first is None else self._first)
        return next((period for upto, period in PERIODS if age < upto), LONG_RUN_PERIOD)

    def sample(self, thread: int, phase: str, now: float = 0.0) -> Optional[Place]:
        """Count the thread's innermost user frame under `phase`, and return it."""
        self._latest = None
        # The frames are let go of before their source is read, which can take long on a slow disk.
        outside = phase == BETWEEN_STEPS
        stack = _stack(_positions(sys._current_frames().get(thread)), outside) if self.wanted else None
        place = None if stack is None else self.placed(stack)
        if place is None:
            return None
        key = (phase, place)
        if key not in self._rows and len(self._rows) >= MAX_REPORTED_PLACES // 2:
            key = (phase, place._replace(library=None))  # a library's places can be many
        if key in self._rows or len(self._rows) < MAX_REPORTED_PLACES:
            self._rows[key] = self._rows.get(key, 0) + 1
            self._latest = now, key
        return place

    def place_of(self, positions: Iterable[Position]) -> Optional[Place]:
        """Return the place of a stack, whose positions come with the innermost first; None where it is empty."""
        return self.placed(_stack(positions))

    def placed(self, stack: _Stack) -> Optional[Place]:
        return _place(stack, self._activity(stack) or "")

    def phase_ended(self, phase: str, t: float) -> None:
        """Move the newest sample if its phase had ended before it: a rollout's end is known when learning begins."""
        if self._latest is None or self._latest[0] <= t or self._latest[1][0] != phase:
            return
        key, self._latest = self._latest[1], None
        if self._rows.get(key):
            other = ("other", key[1])
            self._rows[other] = self._rows.get(other, 0) + 1
            self._rows[key] -= 1
            if not self._rows[key]:
                del self._rows[key]

    def report(self, now: float, is_last: bool = False) -> Optional[Frames]:
        """Return the samples since the last report where one is due; None: not yet, or there are none."""
        if self._first is None:
            return None
        period = self._period_at(now)
        # Samples of one report stand for equally long: it ends where the period changes.
        is_early = now - self._first <= FRAMES_SECONDS
        waited = now - self._begin
        if not (is_last or period != self._period or waited >= (FIRST_REPORT_SECONDS if is_early else FRAMES_SECONDS)):
            return None
        rows, begin = self._rows, self._begin
        self._rows, self._begin, self._period = {}, now, period
        if not rows:
            return None
        return Frames(
            producer="",
            seq=0,
            t=now,
            rows=[(*key, count) for key, count in rows.items()],
            begin=begin,
        )

    def _activity(self, stack: _Stack) -> Optional[str]:
        """Return what a library does in the user's line: by the files of its frames, else by the name of the call."""
        inside = [(calls.package_path(path, LIBRARY), function) for path, function in stack.inside]
        found = calls.library_activity(inside)
        for position in (stack.users, stack.library):
            if found is None and position is not None:
                found = self._of_call(position, is_innermost=not inside)
        return found

    def _of_call(self, position: Position, is_innermost: bool) -> Optional[str]:
        key = position.key
        if key not in self._activities:
            if len(self._activities) >= MAX_CACHED_LINES:
                self._activities.clear()
            activity = calls.call_activity(line_at(position).call, is_innermost)
            if activity is None and is_innermost and _enters(position):
                activity = calls.LOCK  # what is written in C and takes time to enter
            self._activities[key] = activity
        return self._activities[key]


def _place(stack: _Stack, activity: str = "") -> Optional[Place]:
    """Return the innermost frame of the user's code, else the innermost of all, with the library that runs inside.

    Torch and the standard library count as such only where it is unclear what the user's line calls.
    """
    users, library, innermost, _ = stack
    if users is None:
        other = library if library is not None else innermost
        return Place(*line_at(other), activity) if other is not None else None
    line = line_at(users)
    inner = library if library is not None or line.call else innermost
    return Place(*line, activity) if inner is None else Place(*line, activity, line_at(inner)).fitted()


def thread_stacks() -> List[ThreadStack]:
    """Return where each thread but this one is, the main thread first. No source is read, and no lock is taken."""
    threads = getattr(sys.modules.get("threading"), "_active", {})
    here, main = threading.get_ident(), threading.main_thread().ident
    found = []
    for ident, frame in sys._current_frames().items():
        if ident != here:
            name = getattr(threads.get(ident), "name", "")
            theirs = (each for each in _positions(frame) if not each.code.co_filename.startswith(_OWN))
            positions = list(islice(theirs, MAX_FRAMES))
            users = next((at for at, each in enumerate(positions) if is_users(each.code.co_filename)), None)
            lines = [_plain_line(each) for each in positions]
            found.append(ThreadStack(clean(str(name), MAX_NAME), ident == main, lines, users))
    return sorted(found, key=lambda each: not each.is_main)


def innermost_place(frames: Iterable[Tuple[str, int, str]]) -> Optional[str]:
    """Return the innermost line of the program's own code, else of any Python code but ours; None where there is none.

    Args:
        frames: file, line and function of each, the innermost first; those of C++ count as none.
    """
    first: Optional[Line] = None
    for path, line, function in frames:
        if path.endswith(".py") and not path.startswith(_OWN):
            if is_users(path):
                return _told(path, line, function)
            first = first or Line(path, line, function)
    return None if first is None else _told(*first[:3])


def _told(path: str, line: int, function: str) -> str:
    return str(Line(clean(_short(path), MAX_NAME), line, clean(function, MAX_NAME)).fitted(MAX_NAME))


def other_threads(sampler: Sampler, training: int) -> List[Tuple[str, str, str]]:
    """Return name, place and activity of the program's other threads, as far as they run its code or keep it alive."""
    threads = getattr(sys.modules.get("threading"), "_active", {})
    left_out = (training, threading.get_ident())
    found: List[Tuple[str, str, str]] = []
    for ident, frame in sys._current_frames().items():
        if ident in left_out or len(found) >= MAX_OTHER_THREADS:
            continue
        stack, thread = _stack(_positions(frame)), threads.get(ident)
        is_kept = stack.users is None and getattr(thread, "daemon", True) is False and not _idles(stack)
        place = sampler.placed(stack) if stack.users is not None or is_kept else None
        if place is not None:
            name = clean(str(getattr(thread, "name", "")), MAX_NAME)
            found.append((name, str(place.fitted()), place.activity))
    return found


def _idles(stack: _Stack) -> bool:
    """Return whether a thread is a pool's that has nothing to do."""
    return any(path.endswith(os.path.join("futures", "thread.py")) for path, _ in stack.inside)


def _plain_line(position: Position) -> Line:
    file, function = clean(_short(position.code.co_filename), MAX_NAME), clean(position.code.co_name, MAX_NAME)
    return Line(file, position.line or 0, function).fitted(MAX_NAME)


def thread_place(thread: int) -> Optional[Place]:
    """Return where a thread is; None: it has ended, or runs no Python."""
    return _place(_stack(_positions(sys._current_frames().get(thread))))


def _stack(positions: Iterable[Position], outside: bool = False) -> _Stack:
    """Return what a sample needs to know of a stack, whose positions come with the innermost first.

    Args:
        outside: no step is open. A model's call is then a part of other work, and its place the line that calls it.
    """
    innermost: Optional[Position] = None
    library: Optional[Position] = None
    inside: List[Tuple[str, str]] = []
    found: Optional[_Stack] = None
    in_model = False  # a model's call lies around what was found so far
    for position in positions:
        path = position.code.co_filename
        if path.startswith(_OWN):
            continue
        if is_users(path):
            if found is None or in_model:
                found, in_model = _Stack(position, library, innermost, list(inside)), False
            if not outside:
                break
            continue
        in_model = in_model or _MODEL_CALL in path
        if innermost is None:
            innermost = position
        if library is None and _is_library(path):
            library = position
        inside.append((path, position.code.co_name))
        if len(inside) > MAX_LIBRARY_FRAMES:
            del inside[0]  # the outer ones say what was called
    return found or _Stack(None, library, innermost, inside)


def _positions(frame: Optional[FrameType]) -> Iterator[Position]:
    """Yield the positions of a running thread, the innermost first."""
    while frame is not None:
        yield Position.of(frame)
        frame = frame.f_back


# Torch passes on what a worker process or a replica's thread raised as a text, with the traceback in the message.
_PASSED_ON = re.compile(r"(?s)^(Caught \S+ in [^\n]{1,80})\nOriginal Traceback \(most recent call last\):\n(.*)")
_FILE_LINE = re.compile(r'(?m)^  File "([^"\n]+)", line (\d{1,9}), in (\S+)$')


def error_place(error: BaseException) -> Optional[str]:
    """Return the place that an exception came from, as people read it; None where it has no traceback."""
    found = _passed_on(error)
    if found is not None:
        rows = _FILE_LINE.findall(found[2])
        path, line, function = next((row for row in reversed(rows) if is_users(row[0])), ("", "", ""))
        if path:
            return str(Line(clean(_short(path), MAX_NAME), int(line), clean(function, MAX_NAME)).fitted(MAX_NAME))
    stack: List[Position] = []
    trace = error.__traceback__
    while trace is not None and len(stack) < MAX_RAISED:
        stack.append(Position(trace.tb_frame.f_code, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
    place = _place(_stack(reversed(stack))) if stack else None
    return None if place is None else str(place)


def error_text(error: BaseException) -> str:
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
    return not (path.startswith(("<", *LIBRARY)) and "-packages" not in path) and _TORCH not in path


def is_users(path: str) -> bool:
    """Return whether a file is the program's own code: neither a library's nor Python's."""
    if path.startswith("<"):
        return False
    if "site-packages" in path or "dist-packages" in path:
        return program_package.holds(path)
    return not path.startswith(LIBRARY)


def _short(path: str) -> str:
    """Return a path from the working directory, else its last two parts."""
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):
        inside = path
    return os.sep.join(path.split(os.sep)[-2:]) if inside.startswith("..") or "-packages" in path else inside
