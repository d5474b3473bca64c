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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

from trainhooks.protocol.limits import MAX_TEXT, clean

VARIABLE = "TRAINMON_CONTROL"  # 0: no process listens
MAX_MESSAGE = 4096  # bytes of a request or an answer, newline included
MAX_ADDRESS = 107  # bytes of a socket's path
MAX_TRACED_STEPS = 10  # of a trace that is asked for
MAX_REASONS = 8  # of an answer

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

    def line(self) -> bytes:
        return _line({"kind": "trace", "steps": self.steps, "events": self.events, "anyway": self.anyway})


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


def read_request(line: bytes) -> Union[TraceRequest, str]:
    """Return the request in a line; in place of one that is none, why not."""
    found = _mapping(line)
    if found is None:
        return "the request is no line of JSON"
    if found.get("kind") != "trace":
        return "unknown request; this version of the hooks knows: trace"
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


def peer_uid(connection: socket.socket) -> Optional[int]:
    """Return the user at the other end, as the kernel knows it; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    try:
        uid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[1]
    except OSError:
        return None
    return int(uid)
