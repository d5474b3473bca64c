"""Find the processes of a run that may be asked for something, and talk to one: the callers' side of the socket."""

from __future__ import annotations

import contextlib
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import UserError
from monitor.remote.copies import far_of
from monitor.runs import catalogue
from trainhooks.protocol import control, rundir

CONNECT_SECONDS = 5.0  # until a process that listens has taken a connection

_RANK = re.compile(r"rank-(\d{1,9})-(\w+)")


@dataclass(frozen=True)
class Listener:
    """A process of the run that may be asked."""

    rank: int
    producer: str
    socket: Path
    journal: Path


def listeners(run: Path) -> list[Listener]:
    """Return the living processes of the run with a socket, by rank. What a killed process left is none."""
    found = []
    for lock in rundir.rank_locks(run):
        journal = Path(lock).with_suffix(".jsonl")
        path, match = control.socket_path(journal), _RANK.fullmatch(journal.stem)
        with contextlib.suppress(OSError):
            if match is not None and stat.S_ISSOCK(path.lstat().st_mode) and rundir.lock_held(lock):
                found.append(Listener(int(match[1]), match[2], path, journal))
    return sorted(found, key=lambda listener: (listener.rank, listener.producer))


def check_running(run: Path, why: str) -> None:
    """Check that a run's processes can be asked from here.

    Args:
        why: they have to be running.

    Raises:
        UserError: it is not running, or on another machine.
    """
    if not rundir.run_alive(run):
        far = far_of(run)
        there = "on another machine; ask there" if far is None else f"on {far.host}; ask there, about {far.run}"
        raise UserError(f"{run.name} {f'runs {there}' if catalogue.lives(run) else f'is not running; {why}'}")


def why_nobody_listens(run: Path, asked: str) -> str:
    """Return why no process of a run can be `asked for a trace`, in a line."""
    from monitor.runs.follow import load

    if not rundir.run_alive(run):
        return f"{run.name} runs on another machine; it can be {asked} there only"
    why = load(run, measured=False).report.run.facts.control
    if why is not None:
        return f"{run.name} cannot be {asked}: control is {why}"
    return f"{run.name} cannot be {asked}: none of its processes has hooks that listen (yet)"


def connect(connection: socket.socket, path: Path, run: Path) -> bool:
    """Connect to a socket. Return whether who listens is the owner of the run: nobody else is asked for anything."""
    connection.settimeout(CONNECT_SECONDS)
    try:
        with control.address(path) as address:
            connection.connect(str(address))
        return control.peer_uid(connection) == run.lstat().st_uid
    except OSError:  # of another machine, or left behind
        return False


def read_line(connection: socket.socket, seconds: float, most: int = control.MAX_MESSAGE) -> bytes | None:
    """Return what comes until a line ends or the other side closes; None where neither happens within `seconds`."""
    connection.settimeout(seconds)
    received = b""
    try:
        while not received.endswith(b"\n") and len(received) < most:
            data = connection.recv(65536)
            if not data:
                break
            received += data
    except TimeoutError:
        return None
    except OSError:  # the process was killed
        return b""
    return received
