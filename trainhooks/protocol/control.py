"""What a running training may be asked for, and its answers: a line of JSON each, through a socket of the process.

A training process listens at `control-rank-<n>-<producer>.sock` in its run's private directory. A caller sends one
request and gets one answer; the end of the connection says that what was asked for is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from _socket import socket as Socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from trainhooks.protocol.limits import MAX_NAME, MAX_TEXT, clean
from trainhooks.protocol.places import MAX_FRAMES, Line, ThreadStack

VARIABLE = "TRAINMON_CONTROL"  # 0: no process listens
MAX_MESSAGE = 4096  # bytes of a request or an answer, newline included
MAX_ADDRESS = 107  # bytes of a socket's path
MAX_TRACED_STEPS = 10  # of a trace that is asked for
MAX_REASONS = 8  # of an answer

MAX_GROWTH_SECONDS = 16.0  # until it is known: five to see how long steps take, ten with tracemalloc
MAX_STACKS = 131_072  # bytes of the answer with stacks, newline included
MAX_THREADS = 200  # of it

ACCEPTED = "accepted"
REFUSED = "refused"
DOUBTFUL = "doubtful"  # not done: a person has to read the reasons first, and ask again with `anyway`
IDLE = "idle"  # this process has no steps; another one may

_CREDENTIALS = struct.Struct("3i")  # of the peer: pid, uid, gid


@dataclass
class TraceRequest:
    """Asks for a trace of the next steps.

    Attributes:
        steps: 1 to MAX_TRACED_STEPS.
        events: whether what was recorded is also to be written to a file (`trainhooks.protocol.traced_events`).
        anyway: whether it is to be done in spite of what it may print or leave behind.
    """

    steps: int = 3
    events: bool = False
    anyway: bool = False

    @property
    def text(self) -> str:
        return f"a trace of {self.steps} steps" + (", with events" if self.events else "")

    def line(self) -> bytes:
        return _line({"kind": "trace", "steps": self.steps, "events": self.events, "anyway": self.anyway})


@dataclass
class StackRequest:
    """Asks where each thread of the process is now."""

    text = "stacks"

    def line(self) -> bytes:
        return _line({"kind": "stack"})


@dataclass
class MemoryRequest:
    """Asks what holds the memory of the process.

    Attributes:
        growth: whether to tell what stays over a few steps, too, for which tracemalloc is turned on meanwhile.
    """

    growth: bool = False

    @property
    def text(self) -> str:
        return "what holds its memory" + (", and what it grows by, with tracemalloc" if self.growth else "")

    def line(self) -> bytes:
        return _line({"kind": "memory", "growth": self.growth})


Request = Union[TraceRequest, StackRequest, MemoryRequest]


@dataclass
class Answer:
    """The answer to a request.

    Attributes:
        status: ACCEPTED, REFUSED, DOUBTFUL or IDLE.
        reasons: why, or what to know first; for people.
        trace: the number of the trace, as in its event; None where there will be none.
        steps: that it will hold at most.
    """

    status: str
    reasons: List[str] = field(default_factory=list)
    trace: Optional[int] = None
    steps: Optional[int] = None

    def line(self) -> bytes:
        known = {"status": self.status, "reasons": self.reasons, "trace": self.trace, "steps": self.steps}
        return _line({key: value for key, value in known.items() if value not in (None, [])})


def _line(mapping: Dict[str, Any]) -> bytes:
    return json.dumps(mapping, separators=(",", ":")).encode("ascii") + b"\n"


def _mapping(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_request(line: bytes) -> Union[Request, str]:
    """Return the request in a line; in place of one that is none, why not."""
    found = _mapping(line)
    if found is None:
        return "the request is no line of JSON"
    if found.get("kind") == "stack":
        return StackRequest()
    if found.get("kind") == "memory":
        growth = found.get("growth", False)
        return MemoryRequest(growth) if isinstance(growth, bool) else "growth must be true or false"
    if found.get("kind") != "trace":
        return "unknown request; this version of the hooks knows: trace, stack, memory"
    steps, events, anyway = found.get("steps", 3), found.get("events", False), found.get("anyway", False)
    if type(steps) is not int or not 1 <= steps <= MAX_TRACED_STEPS:
        return f"steps must be 1 to {MAX_TRACED_STEPS}"
    if not isinstance(events, bool) or not isinstance(anyway, bool):
        return "events and anyway must be true or false"
    return TraceRequest(steps, events, anyway)


def read_answer(line: bytes) -> Optional[Answer]:
    """Return the answer in a line, its texts cleaned; None where it is none."""
    found = _mapping(line) or {}
    status, reasons, trace, steps = (found.get(name) for name in ("status", "reasons", "trace", "steps"))
    if status not in (ACCEPTED, REFUSED, DOUBTFUL, IDLE) or (status == ACCEPTED and type(trace) is not int):
        return None
    texts = reasons[:MAX_REASONS] if isinstance(reasons, list) else []
    return Answer(
        status,
        [clean(text, MAX_TEXT) for text in texts if isinstance(text, str)],
        trace if type(trace) is int else None,
        steps if type(steps) is int else None,
    )


def stacks_line(threads: List[ThreadStack]) -> bytes:
    """Return the answer to a StackRequest; of too many threads, the first ones."""
    kept = threads[:MAX_THREADS]
    while True:
        rows = [[each.name, each.is_main, [frame.written() for frame in each.frames], each.users] for each in kept]
        line = _line({"status": ACCEPTED, "threads": rows, "left_out": len(threads) - len(kept)})
        if len(line) <= MAX_STACKS or len(kept) <= 1:
            return line
        kept = kept[: len(kept) // 2]


def read_stacks(line: bytes) -> Optional[Tuple[List[ThreadStack], int]]:
    """Return the threads in an answer, its texts cleaned, and how many were left out; None where it is none."""
    found = _mapping(line) or {}
    rows, left_out = found.get("threads"), found.get("left_out")
    if found.get("status") != ACCEPTED or not isinstance(rows, list) or type(left_out) is not int:
        return None
    threads = []
    for row in rows[:MAX_THREADS]:
        if not (isinstance(row, list) and len(row) == 4 and isinstance(row[0], str) and isinstance(row[2], list)):
            return None
        frames = [read for frame in row[2][:MAX_FRAMES] if (read := _read_frame(frame)) is not None]
        users = row[3] if type(row[3]) is int and 0 <= row[3] < len(frames) else None
        threads.append(ThreadStack(clean(row[0], MAX_NAME), row[1] is True, frames, users))
    return threads, left_out


def _read_frame(row: Any) -> Optional[Line]:
    if not isinstance(row, list) or len(row) < 2 or type(row[1]) is not int:
        return None
    file, function = row[0], row[2] if len(row) > 2 else ""
    if not isinstance(file, str) or not isinstance(function, str):
        return None
    return Line(clean(file, MAX_NAME), row[1], clean(function, MAX_NAME))


def socket_path(journal: Path) -> Path:
    """Return the place of the socket of the process with this journal, or lock."""
    return journal.with_name(f"control-{journal.stem}.sock")


@contextlib.contextmanager
def address(path: Path) -> Iterator[Path]:
    """Yield a name of the socket at `path` that is short enough for a socket's address, however long the path is.

    Raises:
        OSError: the directory is missing.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS:
        yield path
        return
    directory = os.open(str(path.parent), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{directory}") / path.name
    finally:
        os.close(directory)


def peer_uid(connection: Socket) -> Optional[int]:
    """Return the user at the other end, as the kernel knows it; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    try:
        uid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[1]
    except OSError:
        return None
    return int(uid)
