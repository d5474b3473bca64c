"""Trainings that trainmon did not start: which of this user's processes they are, and what they print to.

Everything is read from /proc. Nothing is sent to a process, and its environment is not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from monitor import hooks_reach
from monitor.errors import UserError
from monitor.running.command import masked_command
from monitor.runs import catalogue
from monitor.sources.polling import text_of
from trainhooks.protocol import process_identity
from trainhooks.protocol.limits import clean

# What a training has mapped: torch, or a driver that gives a program a context on a GPU. So no driver is asked, which
# takes seconds where it sleeps, and does not return where it hangs.
LIBRARIES = (b"libtorch", b"libcuda.so", b"libamdhip64")
MAX_MAPS_BYTES = 16 << 20
MAX_SHOWN_COMMAND = 200  # characters
OUTPUTS = (1, 2)  # descriptors


@dataclass(frozen=True)
class Log:
    """A regular file that a process prints to."""

    source: str  # where it is opened; for a descriptor that of the process, which leads to removed files, too
    shown: str
    appends: bool  # it may hold what another process wrote before


@dataclass(frozen=True)
class Foreign:
    """A Python process of this user."""

    pid: int
    command: list[str]  # secrets masked
    cwd: str | None
    started: float  # monotonic
    threads: int
    children: int
    logs: list[Log] = field(default_factory=list)  # stdout first; one where stderr is the same
    elsewhere: str = ""  # what it prints to where that is no file


def looked_at(pid: int) -> Foreign:
    """Return a process that may be attached to.

    Raises:
        UserError: it has ended, is another user's, is no Python, or trainmon itself.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            uids, command = process.uids(), process.cmdline() or [process.name()]
        if (uids.real, uids.effective) != (os.getuid(), os.getuid()):
            raise UserError(f"process {pid} belongs to another user; only your own can be attached to")
        if not _is_python(pid, command):
            raise UserError(f"process {pid} ({_name(process)}) is not Python{_pythons_below(process)}")
        if hooks_reach.is_trainmon(command):
            raise UserError(f"process {pid} is trainmon itself; `trainmon ls` lists what it records")
        started = process_identity.started_monotonic(pid)
        children, threads = len(process.children(recursive=True)), process.num_threads()
        cwd: str | None = process.cwd()
    except psutil.ZombieProcess:
        raise UserError(f"process {pid} has ended") from None
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        raise UserError(f"no process {pid} runs here; `trainmon ls` lists trainings that are not watched") from None
    except psutil.AccessDenied:
        raise UserError(f"process {pid} does not let itself be looked at") from None
    if started is None:  # meanwhile
        raise UserError(f"process {pid} has ended")
    logs, elsewhere = _outputs(pid)
    return Foreign(pid, masked_command(command), cwd, started, threads, children, logs, elsewhere)


def shown(command: Iterable[str]) -> str:
    """Return a command for the screen."""
    text = clean(" ".join(command))
    return text if len(text) <= MAX_SHOWN_COMMAND else text[: MAX_SHOWN_COMMAND - 1] + "…"


def recording_run(pid: int) -> Path | None:
    """Return the living run that records a process, or one of its parents."""
    line = {pid, *_parents(pid)}
    return next((run for run in catalogue.paths() if catalogue.lives(run) and line & _pids(run)), None)


def unwatched(living: Iterable[Path]) -> list[tuple[int, str]]:
    """Return pid and command of this user's trainings that are in no run, the first process of each.

    Who asks is none, nor what started it, as a notebook that has torch loaded.

    Args:
        living: the runs whose training is alive.
    """
    known, asking = set().union(*map(_pids, living)), {os.getpid(), *_parents(os.getpid())}
    found = [pid for pid in _own_processes() if pid not in known | asking and _trains(pid)]
    known.update(found)
    roots = [pid for pid in found if not known & _parents(pid)]
    return [(pid, shown(masked_command(_command(pid)))) for pid in roots]


def _pids(run: Path) -> set[int]:
    return {process.pid for process in catalogue.processes(run)}


def _parents(pid: int) -> set[int]:
    line: set[int] = set()
    above = process_identity.parent(pid)
    while above and above not in line:
        line.add(above)
        above = process_identity.parent(above)
    return line


def _own_processes() -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError):  # it has ended
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                found.append(int(name))
    return sorted(found)


def _trains(pid: int) -> bool:
    """Return whether a process is a Python with one of `LIBRARIES`."""
    command = _command(pid)
    if not _is_python(pid, command) or hooks_reach.is_trainmon(command):
        return False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        content = maps.read(MAX_MAPS_BYTES)
        return any(name in content for name in LIBRARIES)
    return False


def _command(pid: int) -> list[str]:
    return [word for word in (text_of(f"/proc/{pid}/cmdline") or "").split("\0") if word]


def _is_python(pid: int, command: list[str]) -> bool:
    """Return whether a process is a Python, by its program's file, or by its words: either may have been replaced."""
    with contextlib.suppress(OSError):
        if hooks_reach.is_python([os.readlink(f"/proc/{pid}/exe")]):
            return True
    return hooks_reach.is_python(command)


def _name(process: psutil.Process) -> str:
    return clean(process.name(), 40)


def _pythons_below(process: psutil.Process) -> str:
    """Return a hint to the first Python below a shell or another launcher."""
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if _is_python(child.pid, child.cmdline()):
                return f"; its Python is {child.pid}"
    return ""


def _outputs(pid: int) -> tuple[list[Log], str]:
    """Return the regular files that a process prints to, each once, and what else it prints to."""
    logs: list[Log] = []
    known, others = set(), []
    for number in OUTPUTS:
        source = f"/proc/{pid}/fd/{number}"
        try:
            status, name = os.stat(source), clean(os.readlink(source), MAX_SHOWN_COMMAND)
            if (status.st_dev, status.st_ino) in known:
                continue
            known.add((status.st_dev, status.st_ino))
            if stat.S_ISREG(status.st_mode) and os.access(source, os.R_OK):
                logs.append(Log(source, name, _appends(pid, number)))
            else:
                others.append(name)
        except OSError:  # closed
            continue
    return logs, ", ".join(others)


def _appends(pid: int, number: int) -> bool:
    for row in (text_of(f"/proc/{pid}/fdinfo/{number}") or "").splitlines():
        if row.startswith("flags:"):
            return bool(int(row.split()[1], 8) & os.O_APPEND)
    return True
