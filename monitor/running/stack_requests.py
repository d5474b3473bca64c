"""Ask every process of a run where it is, and look at those from outside that do not say."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from monitor.model.stacks import HOOKS, KERNEL, PY_SPY, ProcessStack
from monitor.running.asking import Listener, check_running, connect, listeners, read_line
from monitor.runs import catalogue
from monitor.sources.decode import decode
from monitor.sources.journal_reader import JournalTail
from monitor.sources.outside_stacks import kernel_state, py_spy_threads
from monitor.units import age
from trainhooks.protocol import control
from trainhooks.protocol.control import StackRequest
from trainhooks.protocol.events import Frames, Hello
from trainhooks.protocol.limits import clean

ANSWER_SECONDS = 2.0  # the hooks look twenty times a second; a busy interpreter takes its time
MAX_AT_ONCE = 64  # processes asked at the same time
MAX_CHILDREN = 64  # of a process
TAIL_BYTES = 262_144  # of a journal, in which the last samples are looked for
HEAD_BYTES = 65_536  # in which a journal says whose it is


def process_stacks(run: Path) -> list[ProcessStack]:
    """Return where the processes of a running run are, by rank; before hooks report, those of its command.

    Raises:
        UserError: it is not running, or on another machine.
    """
    check_running(run, "only a running one has stacks")
    found = listeners(run)
    with ThreadPoolExecutor(min(MAX_AT_ONCE, max(1, len(found)))) as pool:
        ranks = [process for process in pool.map(lambda one: _ask(one, run), found) if process is not None]
    if ranks:
        return ranks
    roots = [process.pid for process in catalogue.processes(run)]
    return [_from_outside(process) for process in _with_children(roots)]


def _ask(listener: Listener, run: Path) -> ProcessStack | None:
    """Return where a process with hooks is; None where it has ended meanwhile."""
    pid = _pid(listener.journal)
    if pid is None:
        return None
    process = _process(pid)
    if process is None:
        return None
    children = [_from_outside(child) for child in _children(process)]
    answer = None
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        if connect(connection, listener.socket, run):
            connection.sendall(StackRequest().line())
            line = read_line(connection, ANSWER_SECONDS, control.MAX_STACKS)
            answer = control.read_stacks(line) if line else None
    if answer is None:
        threads, why = py_spy_threads(pid)
        note = f"its hooks gave no answer within {ANSWER_SECONDS:g} s: something holds the interpreter{_last(listener)}"
        note += f" ({why})" if why else ""
        how = PY_SPY if threads else KERNEL
        return ProcessStack(
            pid, _name(process), listener.rank, how, kernel_state(pid), note, threads, children=children
        )
    threads, left_out = answer
    return ProcessStack(
        pid, _name(process), listener.rank, HOOKS, kernel_state(pid), "", threads, left_out, children=children
    )


def _pid(journal: Path) -> int | None:
    try:
        with open(journal, "rb") as lines:
            event = decode(lines.readline(HEAD_BYTES))
    except OSError:
        return None
    return event.pid if isinstance(event, Hello) else None


def _last(listener: Listener) -> str:
    """Return `; last seen at train.py:31 in reward 14 s ago`, by the stack samples of the journal."""
    tail = JournalTail(listener.journal, max(0, JournalTail(listener.journal).size() - TAIL_BYTES))
    last = None
    while lines := tail.read():
        for line in lines:
            event = decode(line) if line.startswith(b'{"kind":"frames"') else None
            last = event if isinstance(event, Frames) and event.rows else last
    if last is None:
        return ""
    place = max(last.rows, key=lambda row: row[2])[1]
    return f"; last seen at {clean(str(place), 200)} {age(max(0.0, time.monotonic() - last.t))} ago"


def _from_outside(process: psutil.Process) -> ProcessStack:
    threads, why = py_spy_threads(process.pid)
    how = PY_SPY if threads else KERNEL
    return ProcessStack(process.pid, _name(process), None, how, kernel_state(process.pid), why, threads)


def _with_children(pids: Iterable[int]) -> list[psutil.Process]:
    found = {}
    for process in filter(None, map(_process, pids)):
        for each in (process, *_children(process)):
            found[each.pid] = each
    return list(found.values())


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)[:MAX_CHILDREN]
    except psutil.Error:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return clean(process.name(), 40)
    except psutil.Error:
        return "ended"
